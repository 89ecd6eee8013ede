// The lengths of sequences: those that checks ask about, and those that problems are timed with.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "core/problem.hpp"
#include "lab/stats/random.hpp"

namespace attune::lab {

// Empty where the problem has none of the kind.
struct Lengths {
  std::vector<int32_t> cu_seqlens_q, cu_seqlens_k;  // of packed problems: batch + 1 offsets
  std::vector<int32_t> used_q, used_k;
  std::vector<int32_t> padding;  // keys that a mask shows, for each batch entry of the mask

  bool operator==(const Lengths&) const = default;
};

// Of checks: some sequence is full, one empty and one a single row, where the batch has room for them.
Lengths checked_lengths(const Problem& problem, stats::Random& random);

// Of what is timed: a batch as it is served, the same for every seed. No sequence is shorter than a sixteenth of the
// longest, and none is empty: rows that see no key are NaN in torch, and would keep its backends out of the rounds.
// Where rows and keys have the same bounds, a packed sequence has as many keys as rows.
Lengths timed_lengths(const Problem& problem);

// Whether a mask says the same for all heads and rows: then it pads keys, and what is timed has such a mask.
bool mask_pads(const Problem& problem);
// Whether a key is shown by a mask that pads to `length`. The padding of a causal problem is on the left, so that the
// last row sees all that is there.
bool padding_shows(const Problem& problem, int64_t length, int64_t key);

// Null where the problem has no lengths: for hosts in other languages.
nlohmann::json to_json(const Lengths& lengths);

}  // namespace attune::lab
