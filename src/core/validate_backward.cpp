// The contract of the C interface, checked: every field of a backward descriptor. Those that it shares with a forward
// descriptor are checked by the rules of that (validate.cpp).
#include "core/checks.hpp"
#include "core/error.hpp"
#include "core/operation.hpp"

namespace attune {
namespace {

constexpr attune_features backward_features =
    forward_features | ATTUNE_DLSE | ATTUNE_DSINK | ATTUNE_DBIAS | ATTUNE_ANY_ORDER;

template <typename From, typename To>
void copy_shared_fields(const From& from, To& to) {
  to.features = from.features;
  to.device_kind = from.device_kind;
  to.device_index = from.device_index;
  to.dtype = from.dtype;
  to.bias_dtype = from.bias_dtype;
  to.causal = from.causal;
  to.reserved = from.reserved;
  to.batch = from.batch;
  to.heads_q = from.heads_q;
  to.heads_kv = from.heads_kv;
  to.seq_q = from.seq_q;
  to.seq_k = from.seq_k;
  to.dim_qk = from.dim_qk;
  to.dim_v = from.dim_v;
  to.total_q = from.total_q;
  to.total_k = from.total_k;
  to.q = from.q;
  to.k = from.k;
  to.v = from.v;
  to.o = from.o;
  to.lse = from.lse;
  to.bias = from.bias;
  to.mask = from.mask;
  to.window_left = from.window_left;
  to.window_right = from.window_right;
  to.scale = from.scale;
  to.softcap = from.softcap;
}

void check_needs(const Problem& problem, attune_features wanted, const char* wanted_name, attune_features needed,
                 const char* needed_name) {
  if (problem.has(wanted) && !problem.has(needed))
    fail(ATTUNE_INVALID_ARGUMENT, "desc.features is {:#x}; {} ({:#x}) is allowed only together with {} ({:#x})",
         problem.features, wanted_name, wanted, needed_name, needed);
}

// dbias has the shape of the bias.
void check_bias_gradient(const Problem& problem) {
  if (!problem.has(ATTUNE_DBIAS)) return;
  const auto check = [](const char* name, int64_t extent, int64_t gradient, int64_t bias) {
    if (extent <= 1 || (gradient == 0) == (bias == 0)) return;
    fail(ATTUNE_INVALID_ARGUMENT, "desc.dbias.{} is {} and desc.bias.{} is {}; one may be 0 only where the other is",
         name, gradient, name, bias);
  };
  check("batch", problem.batch, problem.dbias.batch, problem.bias.batch);
  check("head", problem.heads_q, problem.dbias.head, problem.bias.head);
  check("query", problem.seq_q, problem.dbias.query, problem.bias.query);
  check("key", problem.seq_k, problem.dbias.key, problem.bias.key);
}

}  // namespace

Problem problem_from(const attune_backward_desc& desc) {
  check_features(desc.features, backward_features);
  attune_forward_desc forward{};
  copy_shared_fields(desc, forward);
  Problem problem = attention_problem_from(forward);
  problem.operation = &backward_operation;
  check_needs(problem, ATTUNE_DSINK, "ATTUNE_DSINK", ATTUNE_SINK, "ATTUNE_SINK");
  check_needs(problem, ATTUNE_DBIAS, "ATTUNE_DBIAS", ATTUNE_BIAS, "ATTUNE_BIAS");
  // No backward has use for this permission.
  problem.features = (problem.features & ~ATTUNE_F32_HIGH) | ATTUNE_LSE;
  problem.dout = desc.dout;
  problem.dlse = desc.dlse;
  problem.dq = desc.dq;
  problem.dk = desc.dk;
  problem.dv = desc.dv;
  problem.dbias = desc.dbias;
  check_strides(problem);
  check_bias_gradient(problem);
  return problem;
}

attune_backward_desc backward_desc_from(const Problem& problem) {
  attune_backward_desc desc{};
  desc.struct_size = sizeof desc;
  copy_shared_fields(desc_from(problem), desc);
  desc.dout = problem.dout;
  desc.dlse = problem.dlse;
  desc.dq = problem.dq;
  desc.dk = problem.dk;
  desc.dv = problem.dv;
  desc.dbias = problem.dbias;
  return desc;
}

}  // namespace attune
