// What a time is worth: which of a machine's ceilings bounds a kernel at a problem, and the share of it that was
// reached.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/problem.hpp"
#include "lab/measure/ceilings.hpp"

namespace attune::lab {

// Ceilings of one machine by name, each measured when it is first asked for.
class ProbedCeilings {
 public:
  using Probe = std::function<Ceiling(std::string_view name)>;
  explicit ProbedCeilings(Probe probe) : probe_(std::move(probe)) {}

  const Ceiling& named(const std::string& name);
  std::string text() const;  // those asked for, a line each

 private:
  Probe probe_;
  std::map<std::string, Ceiling> probed_;
};

// What stands in the way of a kernel: a call at that ceiling takes `seconds`, 0 where the ceiling is absent.
struct Bound {
  Ceiling ceiling;
  double seconds = 0;

  double share(double measured_seconds) const { return seconds / measured_seconds; }
};

// `kernel`: its name; "": somebody else's code, which may use all the machine has.
Bound bound_of(const Problem& problem, std::string_view kernel, ProbedCeilings& ceilings);

// "72 % of fma", on a GPU "72 %", where there is no ceiling "-".
std::string share_text(const Bound& bound, double measured_seconds);

// The fields ceiling, ceiling_value, ceiling_unit and share, and on a GPU peak_gflops.
nlohmann::json share_json(const Bound& bound, double measured_seconds);

}  // namespace attune::lab
