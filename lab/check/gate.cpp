#include "lab/check/gate.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "core/error.hpp"
#include "lab/check/dtype.hpp"

namespace attune::lab {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// From so many rows on, the RMS of Ideal is known well enough to be compared with.
constexpr double enough_rows = 256;
// Standard deviations, roughly, that the RMS over a single row may lie above its expectation.
constexpr double luck_of_one_row = 4;

double square(double x) { return x * x; }

double row_unit(Dtype dtype, std::span<const double> o, double sigma) {
  double largest_o = 0;
  for (const double x : o) largest_o = std::max(largest_o, std::abs(x));
  return std::max(ulp_at(dtype, largest_o), std::sqrt(12.0) * sigma);
}

// |a - b|, infinite where one of them is not a number or infinite and the other is not the same.
double distance(double value, double truth) {
  if (value == truth) return 0;
  const double difference = std::abs(value - truth);
  return std::isfinite(difference) ? difference : infinity;
}

class Judge {
 public:
  Judge(const Tensors& outputs, const RowChoice& choice, const ReferenceRows& reference, const Ideal& ideal,
        const Accuracy& accuracy)
      : t_(outputs),
        p_(outputs.problem),
        choice_(choice),
        reference_(reference),
        ideal_(ideal),
        accuracy_(accuracy),
        dtype_(dtype_of(p_, choice.output)),
        name_(row_of(choice.output).name) {}

  Judgement judgement() {
    result_.output = choice_.output;
    result_.rows = static_cast<int64_t>(choice_.rows.size());
    result_.total_rows = choice_.total;
    const bool has_lse = choice_.output == Operand::o && is_written(p_, row_of(Operand::lse));
    if (choice_.output == Operand::o) result_.lse_bound = accuracy_.lse_bound;
    result_.max_ulp_bound = accuracy_.max_ulp(p_.dtype);
    size_t next_ideal = 0;
    for (size_t i = 0; i < choice_.rows.size(); ++i) {
      const bool has_ideal = next_ideal < ideal_.ids.size() && ideal_.ids[next_ideal] == choice_.rows[i];
      look_at_output(i, has_ideal ? std::optional(next_ideal++) : std::nullopt);
      if (has_lse) look_at_lse(i);
    }
    close();
    return result_;
  }

 private:
  std::span<const double> truth(size_t i) const {
    const auto dim = static_cast<size_t>(reference_.dim);
    return std::span(reference_.o).subspan(i * dim, dim);
  }

  // `ideal_index`: the place of the row among Ideal's, if it has one.
  void look_at_output(size_t i, std::optional<size_t> ideal_index) {
    const auto o = truth(i);
    const double unit = row_unit(dtype_, o, ideal_index ? ideal_.rows[*ideal_index].sigma : 0);
    const int64_t base = element_offset(t_, choice_.output, choice_.rows[i], 0);
    const int64_t step = element_offset(t_, choice_.output, choice_.rows[i], 1) - base;
    const bool empty = reference_.sees_nothing(i);
    for (size_t c = 0; c < o.size(); ++c) {
      const double value = load_element(t_[choice_.output].data(), dtype_, base + static_cast<int64_t>(c) * step);
      const double ideal = ideal_index ? ideal_.o[*ideal_index * o.size() + c] : o[c];
      if (choice_.output != Operand::o && !std::isfinite(round_to(dtype_, ideal))) continue;
      const double error = distance(value, o[c]);
      note_worst(i, error / unit);
      if (empty && value != 0)
        break_rule(i, "{} is {} at channel {} of a row that sees no key; it must be 0", name_, value, c);
      if (!ideal_index) continue;
      error_energy_ += square(error);
      energy_ += square(o[c]);
      ideal_energy_ += square(distance(ideal, o[c]));
    }
    if (ideal_index) result_.max_logit = std::max(result_.max_logit, ideal_.rows[*ideal_index].max_logit);
  }

  void look_at_lse(size_t i) {
    const double value = t_[Operand::lse].as<float>()[element_offset(t_, Operand::lse, choice_.rows[i], 0)];
    const double expected = reference_.lse[i];
    const double error = distance(value, expected) / std::max(1.0, std::abs(expected));
    // An empty row has an infinite divisor.
    const double counted = std::isnan(error) ? infinity : error;
    if (counted > result_.lse_err) {
      result_.lse_err = counted;
      lse_worst_ = choice_.rows[i];
    }
    if ((value == -infinity) != (expected == -infinity))
      break_rule(i, "lse is {} where it must be {}", value, expected);
  }

  void note_worst(size_t i, double units) {
    if (std::isnan(units)) units = infinity;
    if (units <= result_.max_ulp) return;
    result_.max_ulp = units;
    if (!broken_) result_.worst = choice_.rows[i];
  }

  template <typename... Args>
  void break_rule(size_t i, fmt::format_string<Args...> text, Args&&... args) {
    if (broken_) return;
    broken_ = true;
    result_.worst = choice_.rows[i];
    result_.failure = fmt::format(text, std::forward<Args>(args)...);
  }

  void close() {
    const auto relative = [&](double energy) {
      return energy_ > 0 ? std::sqrt(energy / energy_) : energy > 0 ? infinity : 0;
    };
    const bool large = result_.max_logit > accuracy_.large_logit;
    const double factor = accuracy_.rms_bound(p_.dtype, result_.max_logit);
    result_.rel_rms = relative(error_energy_);
    result_.rel_rms_ideal = relative(ideal_energy_);
    result_.rel_rms_bound = factor * result_.rel_rms_ideal;
    if (large || effective_rows(ideal_) < enough_rows)
      result_.rel_rms_bound = std::max(result_.rel_rms_bound, relative(square(expected_error_norm(ideal_, factor))));
    if (broken_) {
      result_.ok = false;
      return;
    }
    if (!(result_.lse_err <= result_.lse_bound)) {
      result_.worst = lse_worst_;
      result_.failure =
          fmt::format("lse is off by {:.3g} of max(1, |lse|); {:.3g} is allowed", result_.lse_err, result_.lse_bound);
    } else if (!(result_.max_ulp <= result_.max_ulp_bound)) {
      result_.failure = fmt::format("an element of {} is off by {:.3g} units of its row; {:.3g} are allowed", name_,
                                    result_.max_ulp, result_.max_ulp_bound);
    } else if (!(result_.rel_rms <= result_.rel_rms_bound)) {
      result_.failure = fmt::format("relative RMS of {} is {:.3g}, Ideal's {:.3g}; {:.3g} is allowed", name_,
                                    result_.rel_rms, result_.rel_rms_ideal, result_.rel_rms_bound);
    }
    result_.ok = result_.failure.empty();
  }

  const Tensors& t_;
  const Problem& p_;
  const RowChoice& choice_;
  const ReferenceRows& reference_;
  const Ideal& ideal_;
  const Accuracy& accuracy_;
  const Dtype dtype_;  // of the output
  const std::string_view name_;
  Judgement result_;
  RowId lse_worst_;
  double energy_ = 0, error_energy_ = 0, ideal_energy_ = 0;
  bool broken_ = false;
};

double share(double error, double bound) { return error == 0 ? 0 : error / bound; }

}  // namespace

double Judgement::strain() const {
  return std::max({share(rel_rms, rel_rms_bound), share(max_ulp, max_ulp_bound), share(lse_err, lse_bound)});
}

std::string_view Judgement::strained_by() const {
  const double most = strain();
  if (most == share(rel_rms, rel_rms_bound)) return "rel_rms";
  return most == share(max_ulp, max_ulp_bound) ? "max_ulp" : "lse";
}

Judgement judge(const Tensors& outputs, const RowChoice& choice, const ReferenceRows& reference, const Ideal& ideal,
                const Accuracy& accuracy) {
  return Judge(outputs, choice, reference, ideal, accuracy).judgement();
}

double max_ulp_of_ideal(const Tensors& tensors, const RowChoice& choice, const ReferenceRows& reference,
                        const Ideal& ideal) {
  const auto dim = static_cast<size_t>(reference.dim);
  double worst = 0;
  for (size_t i = 0; i < choice.rows.size(); ++i) {
    const auto o = std::span(reference.o).subspan(i * dim, dim);
    const double unit = row_unit(dtype_of(tensors.problem, choice.output), o, ideal.rows[i].sigma);
    for (size_t c = 0; c < dim; ++c) worst = std::max(worst, distance(ideal.o[i * dim + c], o[c]) / unit);
  }
  return worst;
}

double effective_rows(const Ideal& ideal) {
  double sum = 0, squares = 0;
  for (const Ideal::Row& row : ideal.rows) {
    sum += row.expected_energy;
    squares += square(row.expected_energy);
  }
  return squares > 0 ? square(sum) / squares : 0;
}

double expected_error_norm(const Ideal& ideal, double factor) {
  double energy = 0;
  for (const Ideal::Row& row : ideal.rows) energy += row.expected_energy;
  const double rows = std::max(effective_rows(ideal), 1.0);
  return std::sqrt(energy) * (factor + luck_of_one_row / std::sqrt(rows));
}

}  // namespace attune::lab
