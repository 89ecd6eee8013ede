#include "dispatch/select.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace attune {
namespace {

std::string duration(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.3g} us", seconds * 1e6);
  return seconds < 1 ? fmt::format("{:.3g} ms", seconds * 1e3) : fmt::format("{:.3g} s", seconds);
}

// Those that would have to be asked for.
std::string by_name_only(const Problem& problem) {
  std::string names;
  for (const Kernel* kernel : kernels())
    if (kernel->device_kind() == problem.device_kind && &kernel->operation() == problem.operation &&
        !kernel->selectable())
      names += fmt::format("{}{}", names.empty() ? "; by name only: " : ", ", kernel->name());
  return names;
}

}  // namespace

Selection select(const Problem& problem, const Context& context, std::string_view forced, int64_t alignment) {
  Selection selection;
  for (const Kernel* kernel : kernels()) {
    if (kernel->device_kind() != problem.device_kind) continue;
    const bool other_operation = &kernel->operation() != problem.operation;
    if (forced.empty() ? !kernel->selectable() || other_operation : kernel->name() != forced) continue;
    Candidate candidate{kernel, {}, ""};
    if (other_operation)
      candidate.refusal = fmt::format("it computes {}, not {}", kernel->operation().name, problem.operation->name);
    else
      candidate.refusal = kernel->refusal(problem, context);
    if (const int64_t needed = kernel->pointer_alignment(problem); candidate.refusal.empty() && needed > alignment)
      candidate.refusal = fmt::format("it needs pointers aligned to {} bytes", needed);
    if (candidate.refusal.empty()) candidate.offer = kernel->offer(problem, context);
    selection.candidates.push_back(std::move(candidate));
  }
  std::ranges::sort(selection.candidates, [](const Candidate& a, const Candidate& b) {
    if (a.refusal.empty() != b.refusal.empty()) return a.refusal.empty();
    const double a_seconds = a.offer.predicted_seconds, b_seconds = b.offer.predicted_seconds;
    if (a_seconds != b_seconds) return a_seconds < b_seconds;
    return a.kernel->name() < b.kernel->name();
  });

  const auto& all = selection.candidates;
  const auto able = std::ranges::count_if(all, [](const Candidate& c) { return c.refusal.empty(); });
  if (able == 0) {
    if (!all.empty())
      selection.why = "no kernel can take it";
    else if (forced.empty())
      selection.why = fmt::format("no kernel computes '{}' on this kind of device yet{}", problem.operation->name,
                                  by_name_only(problem));
    else
      selection.why = fmt::format("no kernel named '{}' for this device", forced);
    for (const Candidate& c : all) selection.why += fmt::format("; {}: {}", c.kernel->name(), c.refusal);
    return selection;
  }
  selection.chosen = all[0].kernel;
  if (able > 1) selection.runner_up = all[1].kernel;
  if (!forced.empty()) {
    selection.why = "forced";
  } else if (able == 1) {
    selection.why = "the only kernel that can take it";
  } else {
    selection.why = fmt::format("predicted {}, {} {}", duration(all[0].offer.predicted_seconds), all[1].kernel->name(),
                                duration(all[1].offer.predicted_seconds));
  }
  if (problem.has(ATTUNE_OVERLAP))
    selection.why += all[0].offer.overlaps ? "; overlaps the end of the kernel before it"
                                           : "; runs in stream order: it cannot overlap";
  return selection;
}

std::string explanation(const Problem& problem, const Selection& selection, const Context& context) {
  const bool chosen = selection.chosen != nullptr;
  std::string text = fmt::format("problem: {}\nkernel: {}\nwhy: {}\ncandidates:\n", to_string(problem),
                                 chosen ? selection.chosen->name() : "none", selection.why);
  constexpr auto row = "{:>10}  {}\n";
  for (const Candidate& c : selection.candidates) {
    if (c.refusal.empty())
      text += fmt::format(row, duration(c.offer.predicted_seconds), c.kernel->name());
    else
      text += fmt::format(row, "-", fmt::format("{}: {}", c.kernel->name(), c.refusal));
  }
  const auto configurations =
      chosen ? selection.chosen->configurations(problem, context) : std::vector<Configuration>();
  if (!configurations.empty()) text += fmt::format("configurations of {}:\n", selection.chosen->name());
  for (const Configuration& c : configurations) text += fmt::format(row, duration(c.predicted_seconds), c.text);
  return text;
}

}  // namespace attune
