// A Problem is what a call asks: shapes, strides, dtypes, mask, scale, features. It says nothing of how.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "attune/attune.h"

namespace attune {

enum class Dtype : int32_t { f16 = ATTUNE_F16, bf16 = ATTUNE_BF16, f32 = ATTUNE_F32 };
enum class Causal : int32_t {
  none = ATTUNE_CAUSAL_NONE,
  top_left = ATTUNE_CAUSAL_TOP_LEFT,
  bottom_right = ATTUNE_CAUSAL_BOTTOM_RIGHT,
};
enum class DeviceKind : int32_t { cpu = ATTUNE_CPU, cuda = ATTUNE_CUDA };

struct Operation;  // core/operation.hpp
extern const Operation forward_operation;

constexpr int64_t max_head_dim = 512;
constexpr int64_t max_extent = int64_t{1} << 48;  // of batch, heads and sequences: more than any memory holds
constexpr int64_t unbounded = -1;

constexpr int64_t bytes_of(Dtype dtype) { return dtype == Dtype::f32 ? 4 : 2; }
std::string_view name_of(Dtype dtype);
std::string_view name_of(Causal causal);
float default_scale(int64_t dim_qk);  // 1/sqrt(dim_qk)

// Trivially copyable, without padding: a Problem is compared and hashed by its bytes. In one that problem_from or
// parse_problem made, what is switched off is at its default (strides 0, window unbounded, bias_dtype = dtype, batch
// strides of packed tensors 0), and ATTUNE_SCALE, ATTUNE_WINDOW and ATTUNE_SOFTCAP are set only where the value
// differs from the default. An operation has no use for some of the fields; those are at their defaults, too.
struct Problem {
  const Operation* operation = &forward_operation;
  DeviceKind device_kind = DeviceKind::cpu;
  int32_t device_index = 0;
  uint32_t features = 0;  // attune_features
  Dtype dtype = Dtype::f16;
  Dtype bias_dtype = Dtype::f16;
  Dtype part_dtype = Dtype::f16;
  Causal causal = Causal::none;
  int32_t parts = 0;  // partial results that a merge joins

  int64_t batch = 0, heads_q = 0, heads_kv = 0, seq_q = 0, seq_k = 0, dim_qk = 0, dim_v = 0;
  int64_t total_q = 0, total_k = 0;
  attune_strides q{}, k{}, v{}, o{}, lse{}, part_o{}, part_lse{}, dout{}, dlse{}, dq{}, dk{}, dv{};
  attune_score_strides bias{}, mask{}, dbias{};
  int64_t window_left = unbounded, window_right = unbounded;
  float scale = 1;
  float softcap = 0;  // 0: none

  bool has(attune_features feature) const { return (features & feature) != 0; }
  bool packed() const { return has(ATTUNE_PACKED); }
  int64_t group() const { return heads_kv == 0 ? 1 : heads_q / heads_kv; }
  // There are no rows of queries: a forward pass and a merge have nothing to write.
  bool empty() const { return batch == 0 || heads_q == 0 || seq_q == 0 || (packed() && total_q == 0); }

  bool operator==(const Problem& other) const;
  uint64_t hash() const;
};
static_assert(std::is_trivially_copyable_v<Problem>);
static_assert(sizeof(Problem) == 8 + 8 * 4 + 9 * 8 + 12 * 24 + 3 * 32 + 2 * 8 + 2 * 4, "Problem has padding");

// Check the descriptor against the contract (validate.cpp, validate_backward.cpp, validate_merge.cpp) and resolve its
// defaults. Of a merge the pointers say whether a log-sum-exp is asked for.
Problem problem_from(const attune_forward_desc& desc);
Problem problem_from(const attune_backward_desc& desc);
Problem problem_from(const attune_merge_desc& desc, bool with_lse);
attune_forward_desc desc_from(const Problem& problem);
attune_backward_desc backward_desc_from(const Problem& problem);
attune_merge_desc merge_desc_from(const Problem& problem);

// The two kinds of storage the text form knows.
enum class Layout { bshd, bhsd };

// Sets contiguous strides for every tensor of the problem; bias, mask and dbias have stride 0 where their shape says
// so.
struct ScoreShape {
  bool batch = true, head = true, query = true, key = true;  // false: broadcast
};
void set_contiguous(Problem& problem, Layout layout, ScoreShape bias = {}, ScoreShape mask = {});

// `fwd b1 h8/8 q512 k512 d64 f16 causal-br`; see docs/problems.md for the grammar. Its first word is an operation.
// parse_problem throws ATTUNE_INVALID_ARGUMENT naming the word it did not understand; its problems are on the CPU and
// ask for the LSE unless they say `nolse`. Strides print as bshd (by saying nothing) or bhsd, and any others as
// `strided`, which does not parse.
std::string to_string(const Problem& problem);
Problem parse_problem(std::string_view text);

// Useful work, the only place where it is counted: in attention a score costs 2*dim_qk + 2*dim_v operations, and only
// visible scores count (window and causal exactly; bias, boolean masks and device-side lengths as if full); its
// backward costs 2.5 times that, for 5 products instead of 2; in a merge every element of a part costs 2.
double visible_scores(const Problem& problem);
double visible_scores(const Problem& problem, int64_t seq_q, int64_t seq_k);  // one head of one sequence
double useful_flops(const Problem& problem);

// Bytes that must move at least once: each input element that some row needs, each output element.
double compulsory_bytes(const Problem& problem);

}  // namespace attune
