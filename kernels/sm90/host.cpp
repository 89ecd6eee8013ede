#include "kernels/sm90/host.hpp"

#include "kernels/attention/scores.cuh"
#include "kernels/attention/visibility.hpp"
#include "kernels/common/wgmma.cuh"

namespace attune::sm90 {
namespace {

gpu::TensorMapSpec map_spec(const Problem& problem, const attune_strides& strides, int64_t rows, int64_t heads,
                            int box_rows) {
  const auto extent = [](int64_t x) { return static_cast<uint64_t>(x); };
  const auto panels = extent(problem.dim_qk / device::panel_columns);
  gpu::TensorMapSpec spec;
  spec.dims = {device::panel_columns, extent(rows), panels, extent(heads), extent(problem.batch)};
  spec.stride_bytes = {extent(strides.row) * 2, device::panel_row_bytes, extent(strides.head) * 2,
                       extent(strides.batch) * 2};
  spec.box = {device::panel_columns, static_cast<uint32_t>(box_rows), static_cast<uint32_t>(panels), 1, 1};
  spec.rank = 5;
  spec.dtype = problem.dtype;
  spec.swizzle = gpu::CU_TENSOR_MAP_SWIZZLE_128B;
  return spec;
}

}  // namespace

std::string common_refusal(const Problem& problem, const gpu::DeviceProperties& device) {
  if (device.capability() != 90) return fmt::format("{} is not sm_90", device.arch());
  if (problem.dtype == Dtype::f32) return "dtype f32 is not f16 or bf16";
  if (problem.dim_qk != problem.dim_v) return fmt::format("head dims {} and {} differ", problem.dim_qk, problem.dim_v);
  constexpr attune_features taken =
      ATTUNE_SCALE | ATTUNE_LSE | ATTUNE_SINK | ATTUNE_WINDOW | ATTUNE_OVERLAP | ATTUNE_KV_READY;
  if ((problem.features & ~taken) != 0) return "softcap, bias, mask, packed or used lengths are asked for";
  if (problem.empty() || problem.seq_k == 0) return "the problem is empty";
  // Beyond these the exponent scale * (s - max) leaves float32 even for ordinary scores.
  if (!(problem.scale >= 1e-20f && problem.scale <= 1e20f))
    return fmt::format("scale {} is not 1e-20..1e20", problem.scale);
  constexpr int64_t limit = int64_t{1} << 30;
  if (problem.seq_q > limit || problem.seq_k > limit || problem.seq_q * problem.heads_q > limit / problem.batch)
    return "there are more than 2^30 rows";
  if (problem.o.row % 8 != 0 || problem.o.head % 8 != 0 || problem.o.batch % 8 != 0)
    return "a stride of o is not a multiple of 8";
  const Maps maps = maps_of(problem, 64, 64);
  for (const auto& [which, spec] : {std::pair{"q", maps.q}, {"k", maps.k}, {"v", maps.v}})
    if (const std::string why = gpu::tensor_map_refusal(spec); !why.empty()) return fmt::format("{}: {}", which, why);
  return {};
}

device::Band<int32_t> band_of(const Problem& problem) {
  auto band = device::band_of<int32_t>(visibility_of(problem), problem.seq_q, problem.seq_k);
  band.keys = band.end(static_cast<int32_t>(problem.seq_q) - 1);
  return band;
}

device::Mask mask_of(const Problem& problem) {
  const device::Mask least = device::mask_of(band_of(problem), static_cast<int32_t>(problem.seq_q));
  return least == device::Mask::full && problem.causal != Causal::none ? device::Mask::causal : least;
}

device::sm90::Call call_of(const Problem& problem) {
  device::sm90::Call call{};
  call.o_batch_stride = problem.o.batch;
  call.o_row_stride = problem.o.row;
  call.o_head_stride = problem.o.head;
  call.lse_batch_stride = problem.lse.batch;
  call.lse_row_stride = problem.lse.row;
  call.lse_head_stride = problem.lse.head;
  call.seq_q = static_cast<int32_t>(problem.seq_q);
  call.band = band_of(problem);
  call.scale_log2 = device::score_rule<float>(problem.scale, 0, false, false).exp2_factor;
  return call;
}

void set_pointers(device::sm90::Call& call, const Maps& maps, const Operands& operands, const gpu::Driver& driver) {
  call.q = tensor_map(driver, maps.q, operands.in(Operand::q));
  call.k = tensor_map(driver, maps.k, operands.in(Operand::k));
  call.v = tensor_map(driver, maps.v, operands.in(Operand::v));
  call.o = operands.out(Operand::o);
  call.lse = maps.has_lse ? operands.out<float>(Operand::lse) : nullptr;
  call.sink = maps.has_sink ? operands.in<float>(Operand::sink) : nullptr;
}

Maps maps_of(const Problem& problem, int q_rows, int kv_rows) {
  const int64_t keys = band_of(problem).keys;
  return {map_spec(problem, problem.q, problem.seq_q, problem.heads_q, q_rows),
          map_spec(problem, problem.k, keys, problem.heads_kv, kv_rows),
          map_spec(problem, problem.v, keys, problem.heads_kv, kv_rows), problem.has(ATTUNE_LSE),
          problem.has(ATTUNE_SINK)};
}

}  // namespace attune::sm90
