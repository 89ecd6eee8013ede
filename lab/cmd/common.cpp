#include "lab/cmd/common.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>

#include "core/error.hpp"
#include "lab/check/shrink.hpp"
#include "lab/output.hpp"
#include "lab/sets.hpp"

namespace attune::lab {

void ProblemArguments::add_to(CLI::App& command) {
  command.add_option("problem", problems, "a problem, such as 'fwd b1 h8/8 q512 k512 d64 f16 causal-br'");
  std::string known;
  for (const ProblemSet& set : builtin_sets()) known += (known.empty() ? "" : ", ") + set.name;
  command.add_option("--set", sets, fmt::format("a set of problems: {}, or a .toml file", known))
      ->allow_extra_args(false);
}

std::vector<std::string> ProblemArguments::resolve() const {
  std::vector<std::string> all;
  const auto add = [&](const std::string& text) {
    if (std::ranges::find(all, text) == all.end()) all.push_back(text);
  };
  for (const std::string& problem : problems) add(to_string(parse_problem(problem)));
  for (const std::string& set : sets)
    for (const std::string& problem : find_set(set).problems) add(problem);
  return all;
}

std::vector<Backend> backends_named(const std::string& name, cpu::Threads& threads) {
  std::vector<Backend> all = make_backends(threads);
  if (name.empty()) return all;
  std::string present;
  for (const Backend& backend : all) present += (present.empty() ? "" : ", ") + backend.name;
  std::erase_if(all, [&](const Backend& backend) { return backend.name != name; });
  if (all.empty()) fail(ATTUNE_NO_DEVICE, "there is no backend '{}' here; present: {}", name, present);
  return all;
}

void add_backend_option(CLI::App& command, std::string& name) {
  command.add_option("--backend", name, "cpu or cuda, instead of what is best or all there are")
      ->check(CLI::IsMember({"cpu", "cuda"}));
}

void print_json(const nlohmann::json& json) {
  fmt::print("{}\n", json.dump());
  flush_output();
}

Case smallest_failure(Checker& checker, const Outcome& failed) {
  return shrink(failed.of, [&](const Case& c) {
    const Outcome again = checker.check(c);
    return again.unsupported.empty() && !again.ok();
  });
}

attune_options lab_thread_options() {
  attune_options options{};
  options.struct_size = sizeof options;
  return options;
}

}  // namespace attune::lab
