// What came of a check, for people and for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "lab/check/checker.hpp"

namespace attune::lab {

// One object: problem, kernel, why, ok, rel_rms, rel_rms_ideal, max_ulp, lse_err, their bounds, worst, seed, input,
// storage, oracle, output (that the figures are of), outputs (the figures of each, where there are several), rows,
// total_rows, failure, reproduce. Numbers that an oracle does not have, and infinite ones, are null.
nlohmann::json to_json(const Outcome& outcome);

// "ok    cpu/avx512  fwd b1 ...  rel_rms 2.1e-4 of 3.2e-4 ..." in one line, without a newline at its end; of several
// outputs each has a line of its own below.
std::string line_of(const Outcome& outcome);

// A failure with everything needed to chase it; `smallest` is the shrunk case.
std::string failure_text(const Outcome& outcome, const Case& smallest);

// The outcome closest to its bound.
class Worst {
 public:
  void look_at(const Outcome& outcome);
  const std::optional<Outcome>& outcome() const { return worst_; }
  std::string text() const;  // its error, its bound and its problem; "" if nothing was compared

 private:
  std::optional<Outcome> worst_;
};

}  // namespace attune::lab
