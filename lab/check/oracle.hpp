// Oracles: properties every right kernel has at any length, which need no reference.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "cpu/threads.hpp"
#include "lab/check/accuracy.hpp"
#include "lab/check/executor.hpp"
#include "lab/check/rows.hpp"

namespace attune::lab {

enum class Oracle {
  zero_queries,     // q = 0, v one-hot by key: LSE = ln(visible keys), O = each channel's share of them. Of a backward:
                    // dk = 0, and dv is the mean of what arrives
  unit_values,      // v = 1: O = 1. Of a backward to which ones arrive: dq = dk = 0
  key_order,        // keys in another order: the same up to rounding
  head_order,       // heads in another order: the same bits
  batch_order,      // batches in another order: the same bits
  layout,           // other strides and alignment: the same bits
  split,            // every setting of the executor (threads, splits), and the same call twice: the same bits
  halves,           // two halves of the keys, merged: the same up to rounding
  nothing_arrives,  // a backward to which only zeros arrive: every gradient is 0
  twice_arrives,    // a backward to which twice as much arrives: every gradient doubles, up to rounding
  key_sums,         // of a backward: the sum of dv over the keys is what arrives at the rows
};
inline constexpr std::array all_oracles{Oracle::zero_queries,  Oracle::unit_values, Oracle::key_order,
                                        Oracle::head_order,    Oracle::batch_order, Oracle::layout,
                                        Oracle::split,         Oracle::halves,      Oracle::nothing_arrives,
                                        Oracle::twice_arrives, Oracle::key_sums};
// Those of a forward pass.
inline constexpr std::span oracles_of_attention = std::span(all_oracles).first<8>();
std::string_view name_of(Oracle oracle);
Oracle oracle_from(std::string_view name);

struct OracleVerdict {
  std::string not_applicable;  // why the oracle says nothing about this problem, or ""
  std::string failure;         // "" if the property holds
  RowId worst;                 // where it does not
  bool ok() const { return failure.empty(); }
};

struct OracleRun {
  Executor& executor;
  cpu::Threads& threads;
  const Accuracy& accuracy;
  RowPolicy policy;
  std::string kernel;
  uint64_t seed = 1;
  Storage storage = Storage::dense;
};

OracleVerdict consult(Oracle oracle, const Problem& problem, const OracleRun& run);

}  // namespace attune::lab
