// The rows and keys of one batch entry, after packing and used lengths: one rule for host and device.
//
// Lengths that live on the device are data. They are clamped to what the descriptor promises, not trusted: whatever
// they hold, no offset leaves the tensors.
#pragma once

#include "kernels/common/types.cuh"

namespace attune::device {

// Null where a call has no such lengths. With cu_seqlens, seq_q and seq_k are upper bounds of the single lengths.
struct SequenceLengths {
  const int32_t *cu_seqlens_q, *cu_seqlens_k;  // both or neither
  const int32_t *used_q, *used_k;
  int64_t seq_q, seq_k;
  int64_t total_q, total_k;  // packed: of all sequences
};

struct SequenceRows {
  int64_t first_row_q, first_row_k;  // where the sequence begins, in rows
  int64_t seq_q, seq_k;              // rows and keys in use
  int64_t stored_q;                  // rows that exist; those past seq_q see no key: output 0, LSE -inf
};

ATTUNE_SHARED_CODE int64_t clamped(int64_t value, int64_t low, int64_t high) {
  return min_of(max_of(value, low), high);
}

ATTUNE_SHARED_CODE SequenceRows sequence_rows(const SequenceLengths& lengths, int64_t batch) {
  SequenceRows rows{0, 0, lengths.seq_q, lengths.seq_k, lengths.seq_q};
  if (lengths.cu_seqlens_q != nullptr) {
    rows.first_row_q = clamped(lengths.cu_seqlens_q[batch], 0, lengths.total_q);
    rows.first_row_k = clamped(lengths.cu_seqlens_k[batch], 0, lengths.total_k);
    const int64_t end_q = clamped(lengths.cu_seqlens_q[batch + 1], 0, lengths.total_q);
    const int64_t end_k = clamped(lengths.cu_seqlens_k[batch + 1], 0, lengths.total_k);
    rows.stored_q = clamped(end_q - rows.first_row_q, 0, lengths.seq_q);
    rows.seq_k = clamped(end_k - rows.first_row_k, 0, lengths.seq_k);
    rows.seq_q = rows.stored_q;
  }
  if (lengths.used_q != nullptr) rows.seq_q = clamped(lengths.used_q[batch], 0, rows.seq_q);
  if (lengths.used_k != nullptr) rows.seq_k = clamped(lengths.used_k[batch], 0, rows.seq_k);
  return rows;
}

}  // namespace attune::device
