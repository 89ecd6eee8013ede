#include "lab/cmd/common.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "core/error.hpp"
#include "lab/check/shrink.hpp"
#include "lab/cmd/options.hpp"
#include "lab/output.hpp"
#include "lab/report/card_time.hpp"
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

void add_limit(CLI::App& command, TrialOptions& trials) {
  add_number(
      command, "--limit", trials.limit_seconds, 0.1, 1e6,
      "seconds that one step of code from outside may take: a call, or what comes before the first (by default 60)");
}

void OutsideOptions::add_to(CLI::App& command, TrialOptions& trials) {
  const auto list = [&](const char* name, std::vector<std::string>& values, const char* about) {
    command.add_option(name, values, about)->allow_extra_args(false);
  };
  list("--against", against, "another libattune.so");
  list("--plugin", plugins, "a shared library with attune_contender() (docs/your-kernel.md)");
  list("--callable", callables, "a function of Python as module:function or file.py:function");
  list("--source", sources, "a .cu file with a kernel, on a GPU");
  command.add_option("--python", trials.python, "the Python that has torch (by default python3)");
  add_limit(command, trials);
}

std::vector<Entrant> OutsideOptions::entrants() const {
  std::vector<Entrant> all;
  for (const std::string& path : against) all.push_back({.name = path, .library = path});
  for (const std::string& path : plugins) all.push_back({.plugin = path});  // it has a name of its own
  for (const std::string& callable : callables) all.push_back({.name = callable, .callable = callable});
  for (const std::string& path : sources) all.push_back({.name = path, .source = path});
  for (const Entrant& entrant : all) {
    for (const std::string* file : {&entrant.library, &entrant.plugin, &entrant.source})
      if (!file->empty() && !std::filesystem::exists(*file))
        fail(ATTUNE_INVALID_ARGUMENT, "{}: there is no such file", entrant.option());
    if (!entrant.callable.empty() && entrant.callable.find(':') == std::string::npos)
      fail(ATTUNE_INVALID_ARGUMENT, "--callable is '{}'; module:function or file.py:function is allowed",
           entrant.callable);
    if (std::ranges::count_if(all, [&](const Entrant& other) { return other.same_code(entrant); }) > 1)
      fail(ATTUNE_INVALID_ARGUMENT, "{} is given twice", entrant.option());
  }
  return all;
}

void add_price(CLI::App& command, std::optional<double>& price_per_hour) {
  add_number(command, "--price", price_per_hour, 0, std::numeric_limits<double>::infinity(),
             "of an hour of the GPU: the run ends with what it cost");
}

void print_card_time(double seconds, const std::optional<double>& price_per_hour, bool json) {
  fmt::print(json ? stderr : stdout, "{}\n", card_time_text(seconds, price_per_hour));
}

attune_options lab_thread_options() {
  attune_options options{};
  options.struct_size = sizeof options;
  return options;
}

}  // namespace attune::lab
