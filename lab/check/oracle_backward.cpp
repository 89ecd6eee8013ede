#include "lab/check/oracle_backward.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lab/check/dtype.hpp"
#include "lab/check/gate.hpp"
#include "lab/check/inputs.hpp"
#include "lab/check/method.hpp"
#include "lab/check/oracle_tools.hpp"
#include "lab/check/remap.hpp"
#include "lab/stats/random.hpp"

namespace attune::lab {
namespace {

double gradient_at(const Tensors& t, Operand output, const RowId& id, int64_t element) {
  return load_element(t[output].data(), dtype_of(t.problem, output), element_offset(t, output, id, element));
}

class Gradients {
 public:
  Gradients(const Problem& problem, const OracleRun& run) : problem_(problem), run_(run) {}

  // Every visible key has the same weight, and a row of zeros sends nothing to its keys.
  OracleVerdict zero_queries() {
    Tensors t = inputs();
    const Problem& p = t.problem;
    set_rows(t, t[Operand::q], p.q, false, p.dim_qk, [](int64_t, int64_t) { return 0.0f; });
    zero_bias(t);
    fill_results(t, run_.threads);
    run_.executor.run(run_.kernel, t);
    for (const RowId& id : rows_of(t, Operand::dk))
      for (int64_t c = 0; c < p.dim_qk; ++c)
        if (const double value = gradient_at(t, Operand::dk, id, c); value != 0)
          return fails_at(id, fmt::format("dk is {} at element {}, where all queries are 0", value, c));
    for (const RowId& id : rows_of(t, Operand::dv)) {
      const OracleVerdict verdict = dv_of_equal_weights(t, id);
      if (!verdict.ok()) return verdict;
    }
    return {};
  }

  // What arrives is the same for all keys, and the softmax takes back as much.
  OracleVerdict unit_values() {
    if (problem_.has(ATTUNE_SINK)) return {"a sink takes a share of what arrives", "", {}};
    Tensors t = inputs();
    const Problem& p = t.problem;
    const auto one = [](int64_t, int64_t) { return 1.0f; };
    set_rows(t, t[Operand::v], p.v, true, p.dim_v, one);
    set_rows(t, t[Operand::dout], p.dout, false, p.dim_v, one);
    clear_dlse(t);
    fill_results(t, run_.threads);
    run_.executor.run(run_.kernel, t);
    // The weights of a row sum to 1, and each meets a difference of two sums over the channels of v.
    const double of_row = static_cast<double>(p.dim_v) * float_slack(p.dim_v + p.seq_k);
    const double of_key = of_row * static_cast<double>(p.seq_q * p.group());
    const double scale = std::abs(static_cast<double>(p.scale));
    for (const Operand output : check_method_of(p).outputs(p)) {
      double allowed = of_row * static_cast<double>(p.batch * p.heads_q * p.seq_q);
      if (output == Operand::dv) continue;
      if (output == Operand::dq) allowed = scale * of_row * largest(t, Operand::k, p.k, true);
      if (output == Operand::dk) allowed = scale * of_key * largest(t, Operand::q, p.q, false);
      const RowSpace space = row_space(p, output);
      for (const RowId& id : rows_of(t, output))
        for (int64_t c = 0; c < space.dim; ++c)
          if (const double value = gradient_at(t, output, id, c); !(std::abs(value) <= allowed))
            return fails_at(id, fmt::format("{} is {} at element {}, where all values are the same; at most {:.3g} is "
                                            "allowed",
                                            row_of(output).name, value, c, allowed));
    }
    return {};
  }

  // The weights of a row sum to 1, less the share of the sink.
  OracleVerdict key_sums() {
    Tensors t = inputs();
    run_.executor.run(run_.kernel, t);
    const Problem& p = t.problem;
    for (int64_t b = 0; b < p.batch; ++b)
      for (int64_t kv = 0; kv < p.heads_kv; ++kv)
        for (int64_t c = 0; c < p.dim_v; ++c) {
          const OracleVerdict verdict = sum_over_keys(t, {b, kv, 0}, c);
          if (!verdict.ok()) return verdict;
        }
    return {};
  }

  OracleVerdict key_order() {
    const Problem& p = problem_;
    if (p.causal != Causal::none || p.has(ATTUNE_WINDOW)) return {"the order of keys matters to the mask", "", {}};
    if (has_lengths(p)) return {"sequences of different lengths", "", {}};
    if (p.seq_k < 2) return {"fewer than two keys", "", {}};
    Remap remap = identity_remap(p);
    stats::Random(derive_seed(run_.seed, 0x6b657973)).shuffle(remap.keys);
    Tensors original = inputs();
    Tensors copy = remapped(original, p, run_.storage, remap);
    run_.executor.run(run_.kernel, original);
    run_.executor.run(run_.kernel, copy);
    std::vector<int64_t> place(remap.keys.size());  // in the copy, of a key of the original
    for (size_t i = 0; i < place.size(); ++i) place[static_cast<size_t>(remap.keys[i])] = static_cast<int64_t>(i);
    const auto in_copy = [&](Operand output, RowId id, int64_t element) {
      if (is_of_keys(output)) id.row = place[static_cast<size_t>(id.row)];
      if (has_keys_in_its_rows(output)) element = place[static_cast<size_t>(element)];
      return gradient_at(copy, output, id, element);
    };
    return near(original, in_copy, std::sqrt(2.0));
  }

  // Both halves read o and the log-sum-exp of the whole.
  OracleVerdict halves() {
    const Problem& p = problem_;
    if (has_lengths(p)) return {"sequences of different lengths", "", {}};
    if (p.seq_k < 2) return {"fewer than two keys", "", {}};
    if (p.causal == Causal::top_left || p.has(ATTUNE_WINDOW))
      return {"the mask of a half is not a mask of the interface", "", {}};
    Tensors whole = inputs();
    const int64_t cut = (p.seq_k + 1) / 2;
    Tensors first = keys_of(p, whole, 0, cut, run_.storage), second = keys_of(p, whole, cut, p.seq_k, run_.storage);
    for (const Tensors* part : {&first, &second}) {
      const Choice choice = run_.executor.choose(run_.kernel, part->problem);
      if (!choice.supported()) return {choice.why, "", {}};
    }
    for (Tensors* part : {&whole, &first, &second}) run_.executor.run(run_.kernel, *part);
    const auto joined = [&](Operand output, RowId id, int64_t element) {
      int64_t& key = is_of_keys(output) ? id.row : element;
      if (is_of_keys(output) || has_keys_in_its_rows(output)) {
        const bool early = key < cut;
        if (!early) key -= cut;
        return gradient_at(early ? first : second, output, id, element);
      }
      const double last = gradient_at(second, output, id, element);
      return output == Operand::dsink ? last : last + gradient_at(first, output, id, element);
    };
    // Beside the two errors compared there is the rounding of the parts.
    return near(whole, joined, std::sqrt(3.0));
  }

 private:
  Tensors inputs() { return make_inputs(problem_, InputKind::normal, run_.seed, run_.storage, run_.threads); }

  std::vector<RowId> rows_of(const Tensors& t, Operand output) const {
    return choose_rows(t, run_.policy, run_.seed, output).rows;
  }

  static bool is_of_keys(Operand output) { return output == Operand::dk || output == Operand::dv; }
  bool has_keys_in_its_rows(Operand output) const { return output == Operand::dbias && problem_.dbias.key != 0; }

  static void clear_dlse(Tensors& t) {
    if (!t[Operand::dlse].allocated()) return;
    each_row(t, false, [&](int64_t b, int64_t head, int64_t first, int64_t row) {
      t[Operand::dlse].as<float>()[row_offset(t.problem, t.problem.dlse, b, first, row, head)] = 0;
    });
  }

  // body(batch, head, first row of the sequence, row) for the rows or keys in use.
  template <typename Body>
  static void each_row(const Tensors& t, bool keys, const Body& body) {
    const Problem& p = t.problem;
    for (int64_t b = 0; b < p.batch; ++b) {
      const Sequence s = t.sequence(b);
      for (int64_t head = 0; head < (keys ? p.heads_kv : p.heads_q); ++head)
        for (int64_t row = 0; row < (keys ? s.seq_k : s.seq_q); ++row)
          body(b, head, keys ? s.first_row_k : s.first_row_q, row);
    }
  }

  static double largest(const Tensors& t, Operand operand, const attune_strides& strides, bool keys) {
    const Problem& p = t.problem;
    double most = 0;
    each_row(t, keys, [&](int64_t b, int64_t head, int64_t first, int64_t row) {
      const int64_t base = row_offset(p, strides, b, first, row, head);
      for (int64_t c = 0; c < p.dim_qk; ++c)
        most = std::max(most, std::abs(static_cast<double>(load_element(t[operand].data(), p.dtype, base + c))));
    });
    return most;
  }

  static double arriving(const Tensors& t, const RowId& row, int64_t channel) {
    const Problem& p = t.problem;
    const int64_t first = t.sequence(row.batch).first_row_q;
    return load_element(t[Operand::dout].data(), p.dtype,
                        row_offset(p, p.dout, row.batch, first, row.row, row.head) + channel);
  }

  static double lse_of(const Tensors& t, const RowId& row) {
    const Problem& p = t.problem;
    return t[Operand::lse]
        .as<float>()[row_offset(p, p.lse, row.batch, t.sequence(row.batch).first_row_q, row.row, row.head)];
  }

  OracleVerdict dv_of_equal_weights(const Tensors& t, const RowId& id) const {
    const Problem& p = t.problem;
    const Sequence s = t.sequence(id.batch);
    std::vector<double> expected(static_cast<size_t>(p.dim_v)), terms(expected.size());
    for (int64_t head = id.head * p.group(); head < (id.head + 1) * p.group(); ++head)
      for (int64_t i = 0; i < s.seq_q; ++i) {
        const RowId row{id.batch, head, i};
        if (id.row >= s.seq_k || !sees(t, row, s, id.row)) continue;
        const double weight = std::exp(-lse_by_counting(t, row, s));
        for (int64_t c = 0; c < p.dim_v; ++c) {
          const double term = weight * arriving(t, row, c);
          expected[static_cast<size_t>(c)] += term;
          terms[static_cast<size_t>(c)] += std::abs(term);
        }
      }
    const double rounding = ulp_at(p.dtype, 1) / 2;  // of the weights
    for (int64_t c = 0; c < p.dim_v; ++c) {
      const double right = expected[static_cast<size_t>(c)], value = gradient_at(t, Operand::dv, id, c);
      const double slack = ulp_at(p.dtype, right) / 2 +
                           terms[static_cast<size_t>(c)] * (rounding + 2 * float_slack(s.seq_q * p.group()));
      if (!(std::abs(value - right) <= slack))
        return fails_at(id, fmt::format("dv is {} at element {}; with equal weights {} arrives", value, c, right));
    }
    return {};
  }

  static double lse_by_counting(const Tensors& t, const RowId& row, const Sequence& s) {
    double denominator = 0;
    for (int64_t j = 0; j < s.seq_k; ++j) denominator += sees(t, row, s, j) ? 1 : 0;
    if (t.problem.has(ATTUNE_SINK)) denominator += std::exp(t[Operand::sink].as<float>()[row.head]);
    return std::log(denominator);
  }

  OracleVerdict sum_over_keys(const Tensors& t, const RowId& id, int64_t channel) const {
    const Problem& p = t.problem;
    const Sequence s = t.sequence(id.batch);
    double sum = 0, right = 0, squares = 0, slack = 0;
    for (int64_t j = 0; j < s.seq_k; ++j) {
      const double value = gradient_at(t, Operand::dv, {id.batch, id.head, j}, channel);
      sum += value;
      slack += ulp_at(p.dtype, value) / 2;
    }
    for (int64_t head = id.head * p.group(); head < (id.head + 1) * p.group(); ++head)
      for (int64_t i = 0; i < s.seq_q; ++i) {
        const RowId row{id.batch, head, i};
        const double lse = lse_of(t, row), dout = arriving(t, row, channel);
        if (lse == -std::numeric_limits<double>::infinity()) continue;
        const double share = p.has(ATTUNE_SINK) ? std::exp(t[Operand::sink].as<float>()[head] - lse) : 0;
        right += (1 - share) * dout;
        squares += dout * dout;
        slack += std::abs(dout) * (run_.accuracy.lse_bound * std::max(1.0, std::abs(lse)) + float_slack(s.seq_q));
      }
    // The squares of the weights of a row sum to 1 at most, and each weight is rounded apart from the others.
    constexpr double deviations = 6;
    slack += deviations * ulp_at(p.dtype, 1) / 2 * std::sqrt(squares);
    if (std::abs(sum - right) <= slack) return {};
    return fails_at(id, fmt::format("dv sums to {} over the keys at element {}; {} arrives, and {:.3g} is allowed", sum,
                                    channel, right, slack));
  }

  // The gradients of one problem in two ways, each with the error of a good kernel: they differ by at most `errors` of
  // them. The other way is other(output, row, element).
  template <typename Other>
  OracleVerdict near(const Tensors& t, const Other& other, double errors) {
    const CheckMethod& method = check_method_of(t.problem);
    std::vector<RowChoice> choices;
    for (const Operand output : method.outputs(t.problem)) {
      RowChoice choice = choose_rows(t, run_.policy, run_.seed, output);
      choice.rows = choose_ideal_rows(t, choice, run_.policy, run_.seed);
      choices.push_back(std::move(choice));
    }
    const std::vector<Ideal> ideals = method.ideal_of(t, choices, run_.threads);
    for (size_t i = 0; i < choices.size(); ++i) {
      const OracleVerdict verdict = near(t, choices[i], ideals[i], other, errors);
      if (!verdict.ok()) return verdict;
    }
    return {};
  }

  template <typename Other>
  OracleVerdict near(const Tensors& t, const RowChoice& choice, const Ideal& ideal, const Other& other, double errors) {
    double energy = 0, worst_energy = 0, max_logit = 0;
    RowId worst;
    for (size_t i = 0; i < choice.rows.size(); ++i) {
      const RowId& id = choice.rows[i];
      double row_energy = 0;
      for (int64_t c = 0; c < ideal.dim; ++c) {
        const double difference = gradient_at(t, choice.output, id, c) - other(choice.output, id, c);
        row_energy += difference * difference;
      }
      if (!(row_energy <= worst_energy)) worst = id, worst_energy = row_energy;
      energy += row_energy;
      max_logit = std::max(max_logit, ideal.rows[i].max_logit);
    }
    const double bound = errors * expected_error_norm(ideal, run_.accuracy.rms_bound(t.problem.dtype, max_logit));
    if (std::sqrt(energy) <= bound) return {};
    return fails_at(worst, fmt::format("{} is {:.3g} apart (root of the summed squares); {:.3g} is allowed",
                                       row_of(choice.output).name, std::sqrt(energy), bound));
  }

  const Problem problem_;
  const OracleRun& run_;
};

}  // namespace

std::optional<OracleVerdict> consult_gradients(Oracle oracle, const Problem& problem, const OracleRun& run) {
  Gradients gradients(problem, run);
  switch (oracle) {
    case Oracle::zero_queries:
      return gradients.zero_queries();
    case Oracle::unit_values:
      return gradients.unit_values();
    case Oracle::key_order:
      return gradients.key_order();
    case Oracle::halves:
      return gradients.halves();
    case Oracle::key_sums:
      return gradients.key_sums();
    default:
      return std::nullopt;
  }
}

}  // namespace attune::lab
