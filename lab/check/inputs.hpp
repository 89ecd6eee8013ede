// Seeded inputs for checks: random data and the hostile kinds that break attention kernels in the field.
//
// The value of an element depends on the seed and on its place in the tensor (batch, head, row, dim), not on strides:
// the same seed in another storage is the same mathematical problem.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "cpu/threads.hpp"
#include "lab/check/tensors.hpp"

namespace attune::lab {

enum class InputKind {
  normal,           // N(0, 1)
  heavy_tailed,     // Student's t with 2 degrees of freedom
  outlier_channel,  // one channel of k and v times 1000
  equal_logits,     // every key of a head is the same
  far_negative,     // logits near -1e5: a row maximum initialised to a "small enough" constant is wrong here
  rising_max,       // each key beats all before it: the online softmax rescales at every tile
  denormals,        // q, k and v below the smallest normal number
  extremes,         // q and v at the top of the fp16 range, k at its bottom: a 16-bit intermediate overflows
  timed,            // no kind of the checks: normal, with the lengths and the padding of batches as they are served
};
// Those of the checks.
inline constexpr std::array all_input_kinds{
    InputKind::normal,       InputKind::heavy_tailed, InputKind::outlier_channel, InputKind::equal_logits,
    InputKind::far_negative, InputKind::rising_max,   InputKind::denormals,       InputKind::extremes};
std::string_view name_of(InputKind kind);
InputKind input_kind_from(std::string_view name);

// Tensors filled for the problem; outputs stay poison.
Tensors make_inputs(const Problem& problem, InputKind kind, uint64_t seed, Storage storage, cpu::Threads& threads);

// The inputs of attention. Rows past a used length stay poison. Lengths are those of lab/check/lengths.hpp.
void fill_attention(Tensors& tensors, InputKind kind, uint64_t seed, cpu::Threads& threads);

// What arrives at o and lse from behind, for a backward.
void fill_arriving_gradients(Tensors& tensors, InputKind kind, uint64_t seed, cpu::Threads& threads);

// o and the log-sum-exp of a backward, as the forward pass gives them on what the other inputs hold now.
void fill_results(Tensors& tensors, cpu::Threads& threads);

// A seed of its own for one part of a bigger whole.
uint64_t derive_seed(uint64_t seed, uint64_t part);

}  // namespace attune::lab
