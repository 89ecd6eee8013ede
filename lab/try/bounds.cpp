#include "lab/try/bounds.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace attune::lab {

std::vector<Bound> bounds_of(const Problem& problem, const std::vector<Ceiling>& ceilings, int sm_count) {
  std::vector<Bound> bounds;
  for (const Ceiling& ceiling : ceilings) {
    if (!ceiling.absence.empty() || ceiling.value <= 0) continue;
    if (ceiling.name == "matmul" && problem.dtype != Dtype::f32)
      bounds.push_back({"matmul", useful_flops(problem) / (ceiling.value * 1e12)});
    if (ceiling.name == "read") bounds.push_back({"memory", compulsory_bytes(problem) / (ceiling.value * 1e9)});
    if (ceiling.name == "exp2" && ceiling.clock_hz > 0)
      bounds.push_back({"exp", visible_scores(problem) / (ceiling.value * sm_count * ceiling.clock_hz)});
  }
  std::ranges::stable_sort(bounds, std::ranges::greater{}, &Bound::seconds);
  return bounds;
}

std::string bounds_text(const std::vector<Bound>& bounds, double measured_seconds) {
  if (bounds.empty()) return "";
  std::string text;
  for (const Bound& bound : bounds)
    text += fmt::format("{}{} {:.1f} %", text.empty() ? "" : ", ", bound.name, 100 * bound.seconds / measured_seconds);
  return fmt::format("{}; {} is the nearest bound", text, bounds.front().name);
}

}  // namespace attune::lab
