#include "lab/check/plan.hpp"

#include <algorithm>
#include <set>

#include "lab/check/method.hpp"
#include "lab/sets.hpp"

namespace attune::lab {
namespace {

// Sets that are checked in ways of their own; the others only as they are.
constexpr std::string_view special_sets[] = {"features", "edges", "hostile", "long", "decode", "merge", "backward"};

class Planner {
 public:
  Planner(const Executor& executor, const PlanBudget& budget, uint64_t seed)
      : executor_(executor), budget_(budget), seed_(seed) {}

  std::vector<PlannedCheck> plan() {
    for (const Storage storage : all_storages)
      for (const std::string& problem : find_set("features").problems)
        add("features", problem, InputKind::normal, storage, std::nullopt, everyone_of(problem));
    for (const std::string& problem : find_set("edges").problems)
      add("edges", problem, InputKind::normal, Storage::dense, std::nullopt, everyone_of(problem));
    for (const InputKind kind : all_input_kinds)
      for (const std::string& problem : find_set("hostile").problems)
        add("hostile input", problem, kind, Storage::dense, std::nullopt, everyone_of(problem));
    for (const Oracle oracle : oracles_of_attention) {
      for (const std::string& problem : find_set("features").problems)
        add("oracles", problem, InputKind::normal, Storage::dense, oracle, everyone_of(problem));
      for (const std::string& problem : find_set("long").problems)
        add("oracles", problem, InputKind::normal, Storage::dense, oracle, {""});
    }
    for (const std::string& problem : find_set("long").problems)
      add("long", problem, InputKind::normal, Storage::dense, std::nullopt, {""});
    for (const std::string& problem : find_set("merge").problems) {
      for (const InputKind kind : all_input_kinds)
        add("merge", problem, kind, Storage::dense, std::nullopt, everyone_of(problem));
      for (const Storage storage : all_storages)
        if (storage != Storage::dense)
          add("merge", problem, InputKind::normal, storage, std::nullopt, everyone_of(problem));
      add("merge", problem, InputKind::normal, Storage::dense, Oracle::split, everyone_of(problem));
    }
    for (const std::string& problem : find_set("decode").problems)
      add("oracles", problem, InputKind::normal, Storage::dense, Oracle::layout, everyone_of(problem));
    for (const std::string& problem : find_set("backward").problems) {
      for (const InputKind kind : all_input_kinds)
        add("backward", problem, kind, Storage::dense, std::nullopt, everyone_of(problem));
      for (const Storage storage : all_storages)
        if (storage != Storage::dense)
          add("backward", problem, InputKind::normal, storage, std::nullopt, everyone_of(problem));
      for (const Oracle oracle : check_method_of(parse_problem(problem)).oracles)
        add("backward", problem, InputKind::normal, Storage::dense, oracle, everyone_of(problem));
    }
    for (const ProblemSet& set : builtin_sets())
      if (std::ranges::find(special_sets, set.name) == std::end(special_sets)) add_set(set);
    return std::move(plan_);
  }

 private:
  PlannedCheck& add(const std::string& group, const std::string& problem, InputKind input, Storage storage,
                    std::optional<Oracle> oracle, const std::vector<std::string>& kernels) {
    PlannedCheck& check = plan_.emplace_back();
    check.group = group;
    check.what.problem = problem;
    check.what.input = input;
    check.what.seed = seed_;
    check.what.storage = storage;
    check.what.oracle = oracle;
    check.kernels = kernels;
    return check;
  }

  // Sets overlap; a problem is checked with the first set that has it.
  void add_set(const ProblemSet& set) {
    for (const std::string& problem : set.problems) {
      if (!seen_.insert(problem).second) continue;
      const std::string smaller = reduced(problem, affordable_flops(problem));
      PlannedCheck& check = add(set.name, smaller, InputKind::normal, Storage::dense, std::nullopt, {""});
      if (set.name == "mission") check.kernels = everyone_of(smaller);
      if (smaller != problem) check.reduced_from = problem;
      check.rows = affordable_rows(smaller);
    }
  }

  // The float64 of a backward takes many times as long for an operation: a row of a gradient needs whole heads.
  double affordable_flops(const std::string& problem) const {
    constexpr double backward_costs = 128;
    return parse_problem(problem).operation == &backward_operation ? budget_.flops / backward_costs : budget_.flops;
  }

  std::vector<std::string> everyone_of(std::string_view problem) const {
    return executor_.kernels(*parse_problem(problem).operation);
  }

  RowPolicy affordable_rows(const std::string& text) const {
    const Problem problem = parse_problem(text);
    const auto rows = static_cast<double>(problem.batch * problem.heads_q * problem.seq_q);
    const double row_flops = std::max(useful_flops(problem) / std::max(rows, 1.0), 1.0);
    const double affordable = std::min(budget_.reference_flops, budget_.ideal_flops) / row_flops;
    return {budget_.reference_flops, static_cast<int64_t>(std::clamp(affordable, 32.0, 512.0)), budget_.ideal_flops};
  }

  const Executor& executor_;
  PlanBudget budget_;
  uint64_t seed_;
  std::vector<PlannedCheck> plan_;
  std::set<std::string> seen_;
};

}  // namespace

std::vector<PlannedCheck> plan_checks(const Executor& executor, const PlanBudget& budget, uint64_t seed) {
  return Planner(executor, budget, seed).plan();
}

}  // namespace attune::lab
