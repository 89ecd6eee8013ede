// What several commands share: which problems were asked for, and shrinking what failed.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lab/check/backend.hpp"
#include "lab/check/checker.hpp"
#include "lab/trial/child.hpp"

// CLI11 is slow to compile: who only passes it on does without.
namespace CLI {
class App;
}

namespace attune::lab {

// Problems and sets as given on the command line.
struct ProblemArguments {
  std::vector<std::string> problems, sets;

  void add_to(CLI::App& command);
  bool none() const { return problems.empty() && sets.empty(); }
  // In canonical text, each once, in the order given. Throws ATTUNE_INVALID_ARGUMENT for what is no problem or set.
  std::vector<std::string> resolve() const;
};

// The backends present, or the one named. Throws ATTUNE_NO_DEVICE if that one is absent.
std::vector<Backend> backends_named(const std::string& name, cpu::Threads& threads);
void add_backend_option(CLI::App& command, std::string& name);

// One line on standard output.
void print_json(const nlohmann::json& json);

// The smallest case near this one that still fails.
Case smallest_failure(Checker& checker, const Outcome& failed);

// --limit: how long one step of code from outside may take.
void add_limit(CLI::App& command, TrialOptions& trials);

// Code from outside, as given on the command line.
struct OutsideOptions {
  std::vector<std::string> against, plugins, callables, sources;

  void add_to(CLI::App& command, TrialOptions& trials);
  std::vector<Entrant> entrants() const;
  bool none() const { return against.empty() && plugins.empty() && callables.empty() && sources.empty(); }
};

// What the run cost: --price, and the line that says so.
void add_price(CLI::App& command, std::optional<double>& price_per_hour);
void print_card_time(double seconds, const std::optional<double>& price_per_hour, bool json);

// Options of a pool of threads for the lab's own work.
attune_options lab_thread_options();

}  // namespace attune::lab
