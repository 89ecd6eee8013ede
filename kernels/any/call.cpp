#include "kernels/any/call.hpp"

#include <algorithm>
#include <array>
#include <climits>

namespace attune::any {

using device::any::Call;

static_assert(device::any::feature_softcap == ATTUNE_SOFTCAP && device::any::feature_sink == ATTUNE_SINK &&
              device::any::feature_bias == ATTUNE_BIAS && device::any::feature_mask == ATTUNE_MASK &&
              device::any::feature_packed == ATTUNE_PACKED && device::any::feature_used_q == ATTUNE_USED_Q &&
              device::any::feature_used_k == ATTUNE_USED_K && device::any::feature_lse == ATTUNE_LSE);
static_assert(int(device::any::Causal::top_left) == int(Causal::top_left) &&
              int(device::any::Causal::bottom_right) == int(Causal::bottom_right) &&
              device::any::unbounded == unbounded);
static_assert(int(device::Dtype::f16) == int(Dtype::f16) && int(device::Dtype::bf16) == int(Dtype::bf16) &&
              int(device::Dtype::f32) == int(Dtype::f32));

namespace {

device::any::Strides strides_of(const attune_strides& s) { return {s.batch, s.row, s.head}; }
device::any::ScoreStrides strides_of(const attune_score_strides& s) { return {s.batch, s.head, s.query, s.key}; }

}  // namespace

device::Dtype device_dtype(Dtype dtype) { return static_cast<device::Dtype>(dtype); }

Call call_of(const Problem& problem) {
  Call call{};
  call.q_strides = strides_of(problem.q);
  call.k_strides = strides_of(problem.k);
  call.v_strides = strides_of(problem.v);
  call.o_strides = strides_of(problem.o);
  call.lse_strides = strides_of(problem.lse);
  call.bias_strides = strides_of(problem.bias);
  call.mask_strides = strides_of(problem.mask);
  call.batch = problem.batch;
  call.heads = problem.heads_q;
  call.group = problem.group();
  // Of packed sequences the lengths are upper bounds, which may be larger than the whole.
  call.seq_q = problem.packed() ? std::min(problem.seq_q, problem.total_q) : problem.seq_q;
  call.seq_k = problem.packed() ? std::min(problem.seq_k, problem.total_k) : problem.seq_k;
  call.total_q = problem.total_q;
  call.total_k = problem.total_k;
  call.window_left = problem.window_left;
  call.window_right = problem.window_right;
  call.scale = problem.scale;
  call.softcap = problem.softcap;
  call.features = problem.features;
  call.dim_qk = static_cast<int32_t>(problem.dim_qk);
  call.dim_v = static_cast<int32_t>(problem.dim_v);
  call.causal = static_cast<device::any::Causal>(problem.causal);
  call.bias_dtype = device_dtype(problem.bias_dtype);
  return call;
}

void set_pointers(Call& call, const Operands& operands) {
  call.q = operands.in(Operand::q);
  call.k = operands.in(Operand::k);
  call.v = operands.in(Operand::v);
  call.o = operands.out(Operand::o);
  const auto has = [&](attune_features feature) { return (call.features & feature) != 0; };
  if (has(ATTUNE_LSE)) call.lse = operands.out<float>(Operand::lse);
  if (has(ATTUNE_SINK)) call.sink = operands.in<float>(Operand::sink);
  if (has(ATTUNE_BIAS)) call.bias = operands.in(Operand::bias);
  if (has(ATTUNE_MASK)) call.mask = operands.in<uint8_t>(Operand::mask);
  if (has(ATTUNE_PACKED)) {
    call.cu_seqlens_q = operands.in<int32_t>(Operand::cu_seqlens_q);
    call.cu_seqlens_k = operands.in<int32_t>(Operand::cu_seqlens_k);
  }
  if (has(ATTUNE_USED_Q)) call.used_q = operands.in<int32_t>(Operand::used_q);
  if (has(ATTUNE_USED_K)) call.used_k = operands.in<int32_t>(Operand::used_k);
}

int compiled_dim(const Problem& problem) {
  constexpr std::array dims = {64, 128, 192, 256, 512};
  return *std::ranges::lower_bound(dims, std::max(problem.dim_qk, problem.dim_v));
}

jit::Dim3 grid_for(int64_t blocks) { return {static_cast<uint32_t>(std::clamp<int64_t>(blocks, 1, INT_MAX)), 1, 1}; }

}  // namespace attune::any
