// Which keys the rows of a dense problem see, full or causal: key_range.cuh's rule for kernels whose machine code
// depends on how it is written. A Band in registers, as short as it is, makes the assembler allocate other registers
// in sm90/fwd and serialise its products. tests/attention holds both against each other.
#pragma once

#include "kernels/common/types.cuh"

namespace attune::device {

struct DenseKeys {
  int32_t seq_q, seq_k;
  int32_t diagonal;  // causal: row i sees keys 0 .. i + diagonal

  // A row sees the keys before this. It lies below 0 for some rows that see none.
  template <bool causal>
  ATTUNE_SHARED_CODE int limit(int row) const {
    return causal ? min_of(seq_k, row + diagonal + 1) : seq_k;
  }

  // Keys that some row before `row_end` sees.
  template <bool causal>
  ATTUNE_SHARED_CODE int seen_before(int row_end) const {
    if (!causal) return seq_k;
    return max_of(0, min_of(seq_k, min_of(row_end, seq_q) + diagonal));
  }
};

}  // namespace attune::device
