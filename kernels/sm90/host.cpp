#include "kernels/sm90/host.hpp"

#include <algorithm>
#include <numbers>

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
  constexpr attune_features taken = ATTUNE_SCALE | ATTUNE_LSE | ATTUNE_WINDOW | ATTUNE_OVERLAP | ATTUNE_KV_READY;
  if ((problem.features & ~taken) != 0) return "softcap, sink, bias, mask, packed or used lengths are asked for";
  if (problem.window_left != unbounded || problem.window_right != unbounded) return "a window is asked for";
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

device::Band<int64_t> band_of(const Problem& problem) {
  return device::band_of<int64_t>(visibility_of(problem), problem.seq_q, problem.seq_k);
}

int64_t keys_in_use(const Problem& problem) { return band_of(problem).end(problem.seq_q - 1); }

device::sm90::DenseOutputs outputs_of(const Problem& problem) {
  return {nullptr,        nullptr,           problem.o.batch, problem.o.row,
          problem.o.head, problem.lse.batch, problem.lse.row, problem.lse.head};
}

device::DenseKeys keys_of(const Problem& problem) {
  const auto to_int = [](int64_t x) { return static_cast<int32_t>(x); };
  return {to_int(problem.seq_q), to_int(keys_in_use(problem)), to_int(band_of(problem).upper - 1)};
}

float scale_log2_of(const Problem& problem) {
  return static_cast<float>(static_cast<double>(problem.scale) * std::numbers::log2e);
}

Maps maps_of(const Problem& problem, int q_rows, int kv_rows) {
  const int64_t keys = keys_in_use(problem);
  return {map_spec(problem, problem.q, problem.seq_q, problem.heads_q, q_rows),
          map_spec(problem, problem.k, keys, problem.heads_kv, kv_rows),
          map_spec(problem, problem.v, keys, problem.heads_kv, kv_rows)};
}

}  // namespace attune::sm90
