#include "lab/check/report.hpp"

#include <fmt/format.h>

#include <cmath>

namespace attune::lab {
namespace {

struct Reading {
  std::string name;
  double error, bound;
};

Reading strained_reading(const Judgement& j) {
  const std::string_view name = j.strained_by();
  const std::string_view output = row_of(j.output).name;
  if (name == "rel_rms") return {fmt::format("relative RMS of {}", output), j.rel_rms, j.rel_rms_bound};
  if (name == "max_ulp") return {fmt::format("largest error of {} in ulps", output), j.max_ulp, j.max_ulp_bound};
  return {"error of lse", j.lse_err, j.lse_bound};
}

std::string rows_text(const Judgement& j) {
  if (j.rows < j.total_rows) return fmt::format("{} of {} rows", j.rows, j.total_rows);
  return fmt::format("all {} rows", j.total_rows);
}

std::string figures_of_output(const Judgement& j) {
  std::string text = fmt::format("rel_rms {:.2e} (Ideal {:.2e}, bound {:.2e}), max_ulp {:.2f} of {:.2f}", j.rel_rms,
                                 j.rel_rms_ideal, j.rel_rms_bound, j.max_ulp, j.max_ulp_bound);
  if (j.lse_bound > 0) text += fmt::format(", lse {:.1e} of {:.0e}", j.lse_err, j.lse_bound);
  return text + fmt::format(", {}", rows_text(j));
}

// It crashed, hung or gave up before there was a result.
bool nothing_compared(const Outcome& outcome) {
  return !outcome.ok() && !outcome.of.oracle && outcome.judgement.total_rows == 0;
}

}  // namespace

nlohmann::json to_json(const Outcome& outcome) {
  const Judgement& j = outcome.judgement;
  const Case& c = outcome.of;
  const bool compared = !c.oracle && outcome.unsupported.empty();
  const auto number = [&](double value) {
    return compared && std::isfinite(value) ? nlohmann::json(value) : nlohmann::json();
  };
  nlohmann::json json;
  json["problem"] = c.problem;
  json["kernel"] = c.kernel;
  json["why"] = outcome.why;
  json["ok"] = outcome.ok() && outcome.unsupported.empty();
  json["supported"] = outcome.unsupported.empty();
  json["rel_rms"] = number(j.rel_rms);
  json["rel_rms_ideal"] = number(j.rel_rms_ideal);
  json["rel_rms_bound"] = number(j.rel_rms_bound);
  json["max_ulp"] = number(j.max_ulp);
  json["max_ulp_bound"] = number(j.max_ulp_bound);
  const bool has_lse = j.lse_bound > 0;
  json["lse_err"] = has_lse ? number(j.lse_err) : nlohmann::json();
  json["lse_bound"] = has_lse ? number(j.lse_bound) : nlohmann::json();
  for (const Judgement& output : outcome.outputs)
    json["outputs"].push_back({{"output", row_of(output.output).name},
                               {"ok", output.ok},
                               {"rel_rms", number(output.rel_rms)},
                               {"rel_rms_ideal", number(output.rel_rms_ideal)},
                               {"rel_rms_bound", number(output.rel_rms_bound)},
                               {"max_ulp", number(output.max_ulp)},
                               {"max_ulp_bound", number(output.max_ulp_bound)},
                               {"rows", output.rows},
                               {"total_rows", output.total_rows}});
  json["output"] = row_of(j.output).name;
  json["worst"] = {{"batch", j.worst.batch}, {"head", j.worst.head}, {"row", j.worst.row}};
  json["rows"] = j.rows;
  json["total_rows"] = j.total_rows;
  json["seed"] = c.seed;
  json["input"] = name_of(c.input);
  json["storage"] = name_of(c.storage);
  json["oracle"] = c.oracle ? nlohmann::json(name_of(*c.oracle)) : nlohmann::json();
  json["applies"] = outcome.not_applicable.empty();
  json["failure"] = j.failure;
  json["reproduce"] = reproducer(c);
  return json;
}

std::string line_of(const Outcome& outcome) {
  const Judgement& j = outcome.judgement;
  const Case& c = outcome.of;
  if (!outcome.unsupported.empty()) return fmt::format("none  {}: {}", c.problem, outcome.unsupported);
  const std::string what = c.oracle ? std::string(name_of(*c.oracle)) : std::string(name_of(c.input));
  std::string line = fmt::format("{:<4}  {}  on {}, {}", outcome.ok() ? "ok" : "FAIL", c.problem,
                                 c.kernel.empty() ? c.option : c.kernel, what);
  if (!outcome.not_applicable.empty()) return fmt::format("n/a   {}: {}", line.substr(6), outcome.not_applicable);
  if (c.oracle) return line;
  if (nothing_compared(outcome)) return line + ": nothing could be compared";
  if (outcome.outputs.empty()) return fmt::format("{}: {}", line, figures_of_output(j));
  for (const Judgement& output : outcome.outputs)
    line += fmt::format("\n      {:<5} {}", row_of(output.output).name, figures_of_output(output));
  return line;
}

std::string failure_text(const Outcome& outcome, const Case& smallest) {
  const Judgement& j = outcome.judgement;
  std::string text = fmt::format("{}\n      {}\n", line_of(outcome), j.failure);
  if (!nothing_compared(outcome))
    text += fmt::format("      worst at batch {}, head {}, row {}; seed {}, storage {}\n", j.worst.batch, j.worst.head,
                        j.worst.row, outcome.of.seed, name_of(outcome.of.storage));
  text += fmt::format("      {}\n", reproducer(smallest));
  return text;
}

void Worst::look_at(const Outcome& outcome) {
  if (outcome.of.oracle || !outcome.unsupported.empty()) return;
  if (!worst_ || outcome.judgement.strain() > worst_->judgement.strain()) worst_ = outcome;
}

std::string Worst::text() const {
  if (!worst_) return {};
  const Reading reading = strained_reading(worst_->judgement);
  return fmt::format("worst error: {} {:.3g}, bound {:.3g} ({:.0f} %), '{}' on {}, input {}, seed {}", reading.name,
                     reading.error, reading.bound, 100 * reading.error / reading.bound, worst_->of.problem,
                     worst_->of.kernel, name_of(worst_->of.input), worst_->of.seed);
}

}  // namespace attune::lab
