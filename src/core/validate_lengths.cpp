// The contract of the C interface, checked: lengths of sequences that the host can read, as those of a call on the CPU.
// On a GPU they are on the device, and kernels clamp them.
#include <cstdint>

#include "core/error.hpp"
#include "core/operands.hpp"

namespace attune {
namespace {

struct Side {
  const char *offsets_name, *used_name, *longest_name, *total_name;
  const int32_t *offsets, *used;
  int64_t longest, total;
};

void check_offsets(const Side& side, int64_t batch) {
  const int32_t* const offsets = side.offsets;
  if (offsets[0] != 0) fail(ATTUNE_INVALID_ARGUMENT, "{}[0] is {}; it must be 0", side.offsets_name, offsets[0]);
  for (int64_t i = 1; i <= batch; ++i) {
    if (offsets[i] < offsets[i - 1])
      fail(ATTUNE_INVALID_ARGUMENT, "{}[{}] is {}; it must be at least {}, the one before it", side.offsets_name, i,
           offsets[i], offsets[i - 1]);
    const int64_t length = int64_t{offsets[i]} - offsets[i - 1];
    if (length > side.longest)
      fail(ATTUNE_INVALID_ARGUMENT, "{} is {}; it must be at least {}, the length that ends at {}[{}]",
           side.longest_name, side.longest, length, side.offsets_name, i);
  }
  if (offsets[batch] != side.total)
    fail(ATTUNE_INVALID_ARGUMENT, "{}[{}] is {}; it must be {}, {}", side.offsets_name, batch, offsets[batch],
         side.total, side.total_name);
}

// Whether sequences within the bound can fill the tensors: told without the lengths, of which a call that writes
// nothing need have none.
void check_bound(const Problem& problem, const Side& side) {
  if (!problem.packed() || side.total == 0) return;
  if (problem.batch == 0)
    fail(ATTUNE_INVALID_ARGUMENT, "desc.batch is 0; it must be greater, since {} is {}", side.total_name, side.total);
  const int64_t least = (side.total - 1) / problem.batch + 1;
  if (side.longest < least)
    fail(ATTUNE_INVALID_ARGUMENT, "{} is {}; it must be at least {}, since {} is {} and desc.batch is {}",
         side.longest_name, side.longest, least, side.total_name, side.total, problem.batch);
}

void check_side(const Problem& problem, const Side& side) {
  if (problem.packed()) check_offsets(side, problem.batch);
  if (side.used == nullptr) return;
  for (int64_t i = 0; i < problem.batch; ++i) {
    const int64_t length = problem.packed() ? int64_t{side.offsets[i + 1]} - side.offsets[i] : side.longest;
    if (side.used[i] < 0 || side.used[i] > length)
      fail(ATTUNE_INVALID_ARGUMENT, "{}[{}] is {}; it must lie in 0..{}, the length there", side.used_name, i,
           side.used[i], length);
  }
}

}  // namespace

void check_lengths(const Problem& problem, const Operands& operands) {
  const auto lengths = [&](Operand operand) {
    return has_operand(problem, row_of(operand)) ? operands.in<int32_t>(operand) : nullptr;
  };
  const auto check = nothing_to_write(problem) ? check_bound : check_side;
  check(problem, {"args.cu_seqlens_q", "args.used_q", "desc.seq_q", "desc.total_q", lengths(Operand::cu_seqlens_q),
                  lengths(Operand::used_q), problem.seq_q, problem.total_q});
  check(problem, {"args.cu_seqlens_k", "args.used_k", "desc.seq_k", "desc.total_k", lengths(Operand::cu_seqlens_k),
                  lengths(Operand::used_k), problem.seq_k, problem.total_k});
}

}  // namespace attune
