#include "lab/check/checker.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include "core/error.hpp"
#include "lab/check/method.hpp"

namespace attune::lab {
namespace {

uint64_t digest_of_inputs(const Tensors& t) {
  uint64_t hash = 0;
  for_each_buffer(t, [&](const OperandRow& row, size_t, const Buffer& buffer) {
    if (!is_written(t.problem, row)) hash = XXH3_64bits_withSeed(buffer.whole().data(), buffer.whole().size(), hash);
  });
  return hash;
}

// A case that ended in an exception has failed, whatever the numbers would have been.
Judgement thrown(const std::exception& error) {
  Judgement judgement;
  judgement.ok = false;
  judgement.failure = error.what();
  return judgement;
}

}  // namespace

std::string reproducer(const Case& c) {
  std::string command = fmt::format("attune check '{}'", c.problem);
  if (!c.option.empty())
    command += " " + c.option;
  else if (!c.kernel.empty())
    command += fmt::format(" --kernel {}", c.kernel);
  if (c.oracle)
    command += fmt::format(" --oracle {}", name_of(*c.oracle));
  else
    command += fmt::format(" --input {}", name_of(c.input));
  command += fmt::format(" --seed {}", c.seed);
  if (c.storage != Storage::dense) command += fmt::format(" --storage {}", name_of(c.storage));
  return command;
}

Checker::Checker(Executor& executor, ReferenceSource& reference, cpu::Threads& threads, RowPolicy policy,
                 const Accuracy& accuracy)
    : executor_(executor), reference_(reference), threads_(threads), policy_(policy), accuracy_(accuracy) {}

Outcome Checker::check(const Case& c) { return check(c, std::span(&c.kernel, 1)).front(); }

std::vector<Outcome> Checker::check(const Case& c, std::span<const std::string> kernels) {
  std::vector<Contestant> contestants;
  for (const std::string& kernel : kernels) contestants.push_back({&executor_, kernel});
  return check(c, contestants);
}

std::vector<Outcome> Checker::check(const Case& c, std::span<const Contestant> contestants) {
  Problem problem = parse_problem(c.problem);
  problem.device_kind = executor_.device_kind();
  std::optional<Tensors> tensors;
  Truth truth;
  std::vector<Outcome> outcomes;
  for (const auto& [executor, kernel] : contestants) {
    Outcome outcome{c, {}, {}, {}, {}};
    const Choice choice = executor->choose(kernel, with_storage(problem, c.storage));
    outcome.why = choice.why;
    if (!choice.supported()) {
      outcome.of.kernel = kernel;
      outcome.unsupported = choice.why;
      outcomes.push_back(std::move(outcome));
      continue;
    }
    outcome.of.kernel = choice.kernel;
    if (c.oracle) {
      Outcome consulted = consult_oracle(outcome.of, problem);
      consulted.why = choice.why;
      outcomes.push_back(std::move(consulted));
      continue;
    }
    if (!tensors) {
      tensors = make_inputs(problem, c.input, c.seed, c.storage, threads_);
      truth = truth_of(*tensors, c.seed);
    }
    poison_outputs(*tensors);
    const uint64_t before = digest_of_inputs(*tensors);
    try {
      executor->run(choice.kernel, *tensors);
      pronounce(*tensors, truth, outcome);
      std::string stray = stray_writes(*tensors);
      if (stray.empty() && digest_of_inputs(*tensors) != before) stray = "an input was written";
      if (!stray.empty() && outcome.judgement.ok) {
        outcome.judgement.ok = false;
        outcome.judgement.failure = std::move(stray);
      }
    } catch (const std::exception& error) {
      outcome.judgement = thrown(error);
    }
    outcomes.push_back(std::move(outcome));
  }
  return outcomes;
}

Checker::Truth Checker::truth_of(const Tensors& tensors, uint64_t seed) {
  const CheckMethod& method = check_method_of(tensors.problem);
  Truth truth;
  std::vector<RowChoice> with_ideal;
  for (const Operand output : method.outputs(tensors.problem)) {
    truth.rows.push_back(choose_rows(tensors, policy_, seed, output));
    with_ideal.push_back(truth.rows.back());
    with_ideal.back().rows = choose_ideal_rows(tensors, truth.rows.back(), policy_, seed);
    // A gradient is a sum over rounded weights that may cancel: how far it may be off only its Ideal tells.
    if (method.reference_of != nullptr) truth.rows.back().rows = with_ideal.back().rows;
  }
  if (method.reference_of == nullptr) {
    truth.reference.push_back(reference_.rows(tensors, truth.rows.front().rows));
    truth.ideal.push_back(ideal_rows(tensors, with_ideal.front().rows, threads_));
  } else {
    truth.reference = method.reference_of(tensors, truth.rows, threads_);
    truth.ideal = method.ideal_of(tensors, with_ideal, threads_);
  }
  return truth;
}

void Checker::pronounce(const Tensors& tensors, const Truth& truth, Outcome& outcome) {
  for (size_t i = 0; i < truth.rows.size(); ++i) {
    const Judgement judgement =
        judge(tensors, truth.rows[i], truth.reference[i], truth.ideal[i], accuracy_.of(tensors.problem));
    const bool worse =
        judgement.ok != outcome.judgement.ok ? !judgement.ok : judgement.strain() > outcome.judgement.strain();
    if (i == 0 || worse) outcome.judgement = judgement;
    if (truth.rows.size() > 1) outcome.outputs.push_back(judgement);
  }
}

Outcome Checker::consult_oracle(const Case& c, const Problem& problem) {
  Outcome outcome{c, {}, {}, {}, {}};
  try {
    const Accuracy accuracy = accuracy_.of(problem);
    const OracleRun run{executor_, threads_, accuracy, policy_, c.kernel, c.seed, c.storage};
    const OracleVerdict verdict = consult(*c.oracle, problem, run);
    outcome.not_applicable = verdict.not_applicable;
    outcome.judgement.ok = verdict.ok();
    outcome.judgement.failure = verdict.failure;
    outcome.judgement.worst = verdict.worst;
  } catch (const std::exception& error) {
    outcome.judgement = thrown(error);
  }
  return outcome;
}

}  // namespace attune::lab
