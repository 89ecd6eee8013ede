#include "lab/pack/selection.hpp"

#include <fmt/format.h>

#include <vector>

#include "dispatch/context.hpp"
#include "gpu/kernel.hpp"
#include "lab/sets.hpp"

namespace attune::lab {
namespace {

std::string choice_for(Context& context, Problem problem, int device_index) {
  problem.device_kind = DeviceKind::cuda;
  problem.device_index = device_index;
  const Selection selection = select(problem, context, "");
  if (selection.chosen == nullptr) return "none";
  const auto& kernel = dynamic_cast<const gpu::GpuKernel&>(*selection.chosen);
  const gpu::DeviceProperties& device = context.gpu().properties(device_index);
  return fmt::format("{} {}", kernel.name(), kernel.space(problem, device).at(0));
}

}  // namespace

std::string selection_table() {
  attune_options options{};
  options.threads = 1;
  Context context(options, std::make_unique<gpu::Runtime>(gpu::typical_devices()));
  std::string text =
      "# What is selected\n\nMade by `attune selection --out docs/selection.md`: kernel and configuration for the "
      "problems "
      "of the built-in sets, on a\ntypical card of each architecture. A test fails when it is out of date.\n";
  for (const ProblemSet& set : builtin_sets()) {
    text += fmt::format("\n## {}\n\n| problem | architectures | kernel and configuration |\n|---|---|---|\n", set.name);
    for (const std::string& problem : set.problems) {
      // Architectures with the same choice share a row.
      std::vector<std::pair<std::string, std::string>> rows;  // choice, architectures
      for (int i = 0; i < context.gpu().device_count(); ++i) {
        const std::string choice = choice_for(context, parse_problem(problem), i);
        const std::string arch = context.gpu().properties(i).arch();
        if (!rows.empty() && rows.back().first == choice)
          rows.back().second += ", " + arch;
        else
          rows.emplace_back(choice, arch);
      }
      for (const auto& [choice, archs] : rows) text += fmt::format("| {} | {} | {} |\n", problem, archs, choice);
    }
  }
  return text;
}

}  // namespace attune::lab
