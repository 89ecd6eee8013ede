#include "lab/check/report.hpp"

#include <fmt/format.h>

#include <cmath>

namespace attune::lab {
namespace {

struct Reading {
  std::string_view name;
  double error, bound;
};

Reading strained_reading(const Judgement& j) {
  const std::string_view name = j.strained_by();
  if (name == "rel_rms") return {"relative RMS of o", j.rel_rms, j.rel_rms_bound};
  if (name == "max_ulp") return {"largest error of o in ulps", j.max_ulp, j.max_ulp_bound};
  return {"error of lse", j.lse_err, j.lse_bound};
}

std::string rows_text(const Judgement& j) {
  if (j.rows < j.total_rows) return fmt::format("{} of {} rows", j.rows, j.total_rows);
  return fmt::format("all {} rows", j.total_rows);
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
  json["lse_err"] = number(j.lse_err);
  json["lse_bound"] = number(j.lse_bound);
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
  std::string line = fmt::format("{:<4}  {}  on {}, {}", outcome.ok() ? "ok" : "FAIL", c.problem, c.kernel, what);
  if (!outcome.not_applicable.empty()) return fmt::format("n/a   {}: {}", line.substr(6), outcome.not_applicable);
  if (!c.oracle)
    line += fmt::format(
        ": rel_rms {:.2e} (Ideal {:.2e}, bound {:.2e}), max_ulp {:.2f} of {:.2f}, lse {:.1e} of {:.0e}, {}", j.rel_rms,
        j.rel_rms_ideal, j.rel_rms_bound, j.max_ulp, j.max_ulp_bound, j.lse_err, j.lse_bound, rows_text(j));
  return line;
}

std::string failure_text(const Outcome& outcome, const Case& smallest) {
  const Judgement& j = outcome.judgement;
  std::string text = fmt::format("{}\n      {}\n", line_of(outcome), j.failure);
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
