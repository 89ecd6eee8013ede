#include "lab/check/oracle.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/convert.hpp"
#include "core/error.hpp"
#include "lab/check/dtype.hpp"
#include "lab/check/gate.hpp"
#include "lab/check/inputs.hpp"
#include "lab/check/method.hpp"
#include "lab/check/oracle_backward.hpp"
#include "lab/check/oracle_tools.hpp"
#include "lab/check/remap.hpp"
#include "lab/stats/random.hpp"

namespace attune::lab {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

double output_at(const Tensors& t, const RowId& id, int64_t channel) {
  const Problem& p = t.problem;
  const int64_t first = t.sequence(id.batch).first_row_q;
  return load_element(t[Operand::o].data(), p.dtype, row_offset(p, p.o, id.batch, first, id.row, id.head) + channel);
}

double lse_at(const Tensors& t, const RowId& id) {
  const Problem& p = t.problem;
  const int64_t first = t.sequence(id.batch).first_row_q;
  return t[Operand::lse].as<float>()[row_offset(p, p.lse, id.batch, first, id.row, id.head)];
}

bool lse_agrees(double value, double expected, double bound) {
  if (value == expected) return true;
  return std::abs(value - expected) <= bound * std::max(1.0, std::abs(expected));
}

class Consultation {
 public:
  Consultation(const Problem& problem, const OracleRun& run) : problem_(problem), run_(run) {}

  OracleVerdict zero_queries() {
    Tensors t = inputs();
    const Problem& p = t.problem;
    set_rows(t, t[Operand::q], p.q, false, p.dim_qk, [](int64_t, int64_t) { return 0.0f; });
    set_rows(t, t[Operand::v], p.v, true, p.dim_v,
             [&](int64_t row, int64_t c) { return row % p.dim_v == c ? 1.0f : 0.0f; });
    zero_bias(t);
    run_.executor.run(run_.kernel, t);

    std::vector<int64_t> counts(static_cast<size_t>(p.dim_v));
    for (const RowId& id : rows_of(t)) {
      const Sequence s = t.sequence(id.batch);
      std::ranges::fill(counts, 0);
      int64_t visible = 0;
      for (int64_t j = 0; j < s.seq_k; ++j)
        if (sees(t, id, s, j)) ++visible, ++counts[static_cast<size_t>(j % p.dim_v)];
      double denominator = static_cast<double>(visible);
      if (p.has(ATTUNE_SINK) && id.row < s.seq_q) denominator += std::exp(t[Operand::sink].as<float>()[id.head]);
      const double expected_lse = denominator > 0 ? std::log(denominator) : -infinity;
      if (p.has(ATTUNE_LSE) && !lse_agrees(lse_at(t, id), expected_lse, run_.accuracy.lse_bound))
        return fails_at(
            id, fmt::format("lse is {}, ln of the visible keys ({}) is {}", lse_at(t, id), visible, expected_lse));
      for (int64_t c = 0; c < p.dim_v; ++c) {
        const int64_t count = counts[static_cast<size_t>(c)];
        const double share = count == 0 ? 0 : static_cast<double>(count) / denominator;
        // Weights of 1 and their sums are exact, so that nothing but the quotient is rounded.
        const double slack = ulp_at(p.dtype, share) / 2 + share * float_slack(visible);
        if (!(std::abs(output_at(t, id, c) - share) <= slack))
          return fails_at(id, fmt::format("channel {} holds {}; {} of {} visible keys are {}", c, output_at(t, id, c),
                                          count, visible, share));
      }
    }
    return {};
  }

  OracleVerdict unit_values() {
    Tensors t = inputs();
    const Problem& p = t.problem;
    if (p.has(ATTUNE_SINK) && !p.has(ATTUNE_LSE)) return {"a sink takes a share that only the LSE tells", "", {}};
    set_rows(t, t[Operand::v], p.v, true, p.dim_v, [](int64_t, int64_t) { return 1.0f; });
    run_.executor.run(run_.kernel, t);
    for (const RowId& id : rows_of(t)) {
      const Sequence s = t.sequence(id.batch);
      int64_t visible = 0;
      for (int64_t j = 0; j < s.seq_k; ++j) visible += sees(t, id, s, j) ? 1 : 0;
      double sum = visible > 0 ? 1 : 0;
      double slack = sum * (ulp_at(p.dtype, 1) + float_slack(visible));
      if (visible > 0 && p.has(ATTUNE_SINK)) {
        const double lse = lse_at(t, id);
        const double lost = std::exp(t[Operand::sink].as<float>()[id.head] - lse);
        sum -= lost;
        slack += 2 * run_.accuracy.lse_bound * std::max(1.0, std::abs(lse)) * lost;
      }
      for (int64_t c = 0; c < p.dim_v; ++c)
        if (!(std::abs(output_at(t, id, c) - sum) <= slack))
          return fails_at(id, fmt::format("channel {} holds {}; the weights of {} keys sum to {}", c,
                                          output_at(t, id, c), visible, sum));
    }
    return {};
  }

  OracleVerdict key_order() {
    const Problem& p = problem_;
    if (p.causal != Causal::none || p.has(ATTUNE_WINDOW)) return {"the order of keys matters to the mask", "", {}};
    if (has_lengths(problem_)) return {"sequences of different lengths", "", {}};
    if (p.seq_k < 2) return {"fewer than two keys", "", {}};
    Remap remap = identity_remap(p);
    stats::Random(derive_seed(run_.seed, 0x6b657973)).shuffle(remap.keys);
    Tensors original = inputs();
    Tensors copy = remapped(original, problem_, run_.storage, remap);
    run_.executor.run(run_.kernel, original);
    run_.executor.run(run_.kernel, copy);
    return near(original, copy, std::sqrt(2.0));
  }

  OracleVerdict head_order() {
    if (problem_.heads_q < 2) return {"a single head", "", {}};
    if (is_backward() && !sums_stay(problem_.dbias.head)) return {"the order of heads is that of a sum", "", {}};
    Remap remap = identity_remap(problem_);
    rotate_heads(remap);
    return same_bits(problem_, run_.storage, remap);
  }

  OracleVerdict batch_order() {
    if (problem_.batch < 2) return {"a single batch entry", "", {}};
    if (is_backward() && (problem_.has(ATTUNE_DSINK) || !sums_stay(problem_.dbias.batch)))
      return {"the order of batches is that of a sum", "", {}};
    Remap remap = identity_remap(problem_);
    std::ranges::rotate(remap.batches, remap.batches.begin() + 1);
    return same_bits(problem_, run_.storage, remap);
  }

  OracleVerdict layout() {
    Problem other = problem_;
    const auto shape = [](const attune_score_strides& s) {
      return ScoreShape{s.batch != 0, s.head != 0, s.query != 0, s.key != 0};
    };
    const bool heads_outside = problem_.q.head > problem_.q.row;
    set_contiguous(other, heads_outside ? Layout::bshd : Layout::bhsd, shape(problem_.bias), shape(problem_.mask));
    const Storage storage = run_.storage == Storage::odd ? Storage::dense : Storage::odd;
    const Choice choice = run_.executor.choose(run_.kernel, with_storage(other, storage));
    if (!choice.supported()) return {choice.why, "", {}};
    return same_bits(other, storage, identity_remap(problem_));
  }

  OracleVerdict split() {
    Tensors original = inputs();
    Tensors copy = original;
    run_.executor.run(run_.kernel, original);
    for (const std::string& setting : run_.executor.settings()) {
      poison_outputs(copy);
      run_.executor.run(run_.kernel, copy, setting);
      const std::string difference = first_difference(original, copy, identity_remap(problem_));
      if (!difference.empty()) return {"", fmt::format("{}: {}", setting, difference), {}};
    }
    return {};
  }

  OracleVerdict nothing_arrives() {
    Tensors t = inputs();
    scale_arriving(t, 0);
    run_.executor.run(run_.kernel, t);
    return each_output(t,
                       [](Dtype, double value, Operand, int64_t) { return value == 0 ? "" : "where nothing arrives"; });
  }

  // A factor of 2 moves nothing but exponents: only what is below the normal numbers is rounded another way.
  OracleVerdict twice_arrives() {
    Tensors once = inputs(), twice = once;
    scale_arriving(twice, 2);
    run_.executor.run(run_.kernel, once);
    run_.executor.run(run_.kernel, twice);
    const Tensors& half = once;
    return each_output(twice, [&half](Dtype dtype, double value, Operand output, int64_t at) {
      const double expected = 2 * load_element(half[output].data(), dtype, at);
      const double slack = ulp_at(dtype, expected) + ulp_at(dtype, 0);
      return std::abs(value - expected) <= slack ? "" : "where twice as much arrives";
    });
  }

  OracleVerdict halves() {
    const Problem& p = problem_;
    if (has_lengths(problem_)) return {"sequences of different lengths", "", {}};
    if (!p.has(ATTUNE_LSE)) return {"without the LSE parts cannot be merged", "", {}};
    if (p.seq_k < 2) return {"fewer than two keys", "", {}};
    if (p.causal == Causal::top_left || p.has(ATTUNE_WINDOW))
      return {"the mask of a half is not a mask of the interface", "", {}};

    Tensors whole = inputs();
    run_.executor.run(run_.kernel, whole);
    const int64_t cut = (p.seq_k + 1) / 2;
    Tensors first = keys_of(p, whole, 0, cut, run_.storage), second = keys_of(p, whole, cut, p.seq_k, run_.storage);
    for (const Tensors* part : {&first, &second}) {
      const Choice choice = run_.executor.choose(run_.kernel, part->problem);
      if (!choice.supported()) return {choice.why, "", {}};
    }
    run_.executor.run(run_.kernel, first);
    run_.executor.run(run_.kernel, second);
    Tensors joined = whole;
    joined[Operand::o].poison();
    joined[Operand::lse].poison();
    merge(first, second, joined);
    // Beside the two errors compared there is the rounding of the parts.
    return near(whole, joined, std::sqrt(3.0));
  }

 private:
  Tensors inputs() { return make_inputs(problem_, InputKind::normal, run_.seed, run_.storage, run_.threads); }

  bool is_backward() const { return problem_.operation->operands.has(Operand::dout); }

  // Whether the gradient of the bias, if there is one, is not summed along a dimension.
  bool sums_stay(int64_t stride) const { return !problem_.has(ATTUNE_DBIAS) || stride != 0; }

  // KV heads rotate by one, and the query heads of each with it. Among themselves they do so, too, but for a backward,
  // which sums over them.
  void rotate_heads(Remap& remap) const {
    const int64_t group = problem_.group(), inside = is_backward() ? 0 : 1;
    for (int64_t kv = 0; kv < problem_.heads_kv; ++kv) {
      const int64_t from = (kv + 1) % problem_.heads_kv;
      remap.heads_kv[static_cast<size_t>(kv)] = from;
      for (int64_t i = 0; i < group; ++i)
        remap.heads_q[static_cast<size_t>(kv * group + i)] = from * group + (i + inside) % group;
    }
  }

  static void scale_arriving(Tensors& t, float factor) {
    const Problem& p = t.problem;
    const auto scale = [&](Operand operand, const attune_strides& strides, Dtype dtype, int64_t dim) {
      if (!t[operand].allocated()) return;
      for (int64_t b = 0; b < p.batch; ++b) {
        const Sequence s = t.sequence(b);
        for (int64_t head = 0; head < p.heads_q; ++head)
          for (int64_t row = 0; row < s.seq_q; ++row) {
            const int64_t base = row_offset(p, strides, b, s.first_row_q, row, head);
            for (int64_t c = 0; c < dim; ++c)
              store_element(t[operand].data(), dtype, base + c,
                            factor * load_element(t[operand].data(), dtype, base + c));
          }
      }
    };
    scale(Operand::dout, p.dout, p.dtype, p.dim_v);
    scale(Operand::dlse, p.dlse, Dtype::f32, 1);
  }

  // complaint(dtype, value, output, offset) for every element of every output; "" where it is as it should be.
  template <typename Complaint>
  OracleVerdict each_output(const Tensors& t, const Complaint& complaint) const {
    for (const OperandRow& row : operand_rows()) {
      if (!is_written(t.problem, row)) continue;
      const Dtype dtype = dtype_of(t.problem, row.operand);
      const RowSpace space = row_space(t.problem, row.operand);
      for (int64_t b = 0; b < space.batches; ++b)
        for (int64_t head = 0; head < space.heads; ++head)
          for (int64_t i = 0; i < rows_in(t, row.operand, b); ++i)
            for (int64_t c = 0; c < space.dim; ++c) {
              const int64_t at = element_offset(t, row.operand, {b, head, i}, c);
              const double value = load_element(t[row.operand].data(), dtype, at);
              const std::string_view wrong_here = complaint(dtype, value, row.operand, at);
              if (!wrong_here.empty())
                return fails_at({b, head, i}, fmt::format("{} is {} at element {} {}", row.name, value, c, wrong_here));
            }
    }
    return {};
  }

  std::vector<RowId> rows_of(const Tensors& t) const {
    return choose_ideal_rows(t, choose_rows(t, run_.policy, run_.seed), run_.policy, run_.seed);
  }

  OracleVerdict same_bits(const Problem& target, Storage storage, const Remap& remap) {
    Tensors original = inputs();
    Tensors copy = remapped(original, target, storage, remap);
    run_.executor.run(run_.kernel, original);
    run_.executor.run(run_.kernel, copy);
    return {"", first_difference(original, copy, remap), {}};
  }

  // Leaves the joined result of both halves in `joined`.
  void merge(const Tensors& first, const Tensors& second, Tensors& joined) {
    const Problem& p = joined.problem;
    Problem merging;
    merging.operation = &merge_operation;
    merging.device_kind = p.device_kind;
    merging.device_index = p.device_index;
    merging.features = ATTUNE_LSE;
    merging.dtype = merging.bias_dtype = merging.part_dtype = p.dtype;
    merging.parts = 2;
    merging.batch = p.batch;
    merging.heads_q = merging.heads_kv = p.heads_q;
    merging.seq_q = p.seq_q;
    merging.dim_qk = merging.dim_v = p.dim_v;
    merging.scale = default_scale(p.dim_v);
    merging.o = p.o;
    merging.lse = p.lse;
    merging.part_o = first.problem.o;
    merging.part_lse = first.problem.lse;
    Tensors call = allocate(merging, Storage::dense);
    call.parts(Operand::part_o) = {first[Operand::o], second[Operand::o]};
    call.parts(Operand::part_lse) = {first[Operand::lse], second[Operand::lse]};
    run_.executor.run("", call);
    joined[Operand::o] = call[Operand::o];
    joined[Operand::lse] = call[Operand::lse];
  }

  // Two results of the same problem, each with the error of a good kernel: they differ by at most `errors` of them.
  OracleVerdict near(const Tensors& a, const Tensors& b, double errors) {
    const Problem& p = a.problem;
    const std::vector<RowId> rows = rows_of(a);
    const Ideal ideal = ideal_rows(a, rows, run_.threads);
    double energy = 0, worst_energy = 0, max_logit = 0;
    RowId worst;
    for (size_t i = 0; i < rows.size(); ++i) {
      const RowId& id = rows[i];
      double row_energy = 0;
      for (int64_t c = 0; c < p.dim_v; ++c) {
        const double difference = output_at(a, id, c) - output_at(b, id, c);
        row_energy += difference * difference;
      }
      if (!(row_energy <= worst_energy)) worst = id, worst_energy = row_energy;
      energy += row_energy;
      max_logit = std::max(max_logit, ideal.rows[i].max_logit);
      if (p.has(ATTUNE_LSE) && !lse_agrees(lse_at(a, id), lse_at(b, id), 2 * run_.accuracy.lse_bound))
        return fails_at(id, fmt::format("lse is {} one way and {} the other", lse_at(a, id), lse_at(b, id)));
    }
    const double factor = run_.accuracy.rms_bound(p.dtype, max_logit);
    const double bound = errors * expected_error_norm(ideal, factor);
    if (std::sqrt(energy) <= bound) return {};
    return fails_at(worst, fmt::format("the outputs are {:.3g} apart (root of the summed squares); {:.3g} is allowed",
                                       std::sqrt(energy), bound));
  }

  const Problem problem_;
  const OracleRun& run_;
};

}  // namespace

std::string_view name_of(Oracle oracle) {
  switch (oracle) {
    case Oracle::zero_queries:
      return "zero-queries";
    case Oracle::unit_values:
      return "unit-values";
    case Oracle::key_order:
      return "key-order";
    case Oracle::head_order:
      return "head-order";
    case Oracle::batch_order:
      return "batch-order";
    case Oracle::layout:
      return "layout";
    case Oracle::split:
      return "split";
    case Oracle::halves:
      return "halves";
    case Oracle::nothing_arrives:
      return "nothing-arrives";
    case Oracle::twice_arrives:
      return "twice-arrives";
    case Oracle::key_sums:
      return "key-sums";
  }
  return "?";
}

Oracle oracle_from(std::string_view name) {
  std::string known;
  for (const Oracle oracle : all_oracles) {
    if (name_of(oracle) == name) return oracle;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", name_of(oracle));
  }
  fail(ATTUNE_INVALID_ARGUMENT, "oracle is '{}'; the oracles are {}", name, known);
}

OracleVerdict consult(Oracle oracle, const Problem& problem, const OracleRun& run) {
  const std::span<const Oracle> known = check_method_of(problem).oracles;
  if (std::ranges::find(known, oracle) == known.end())
    return {fmt::format("it says nothing about the operation '{}'", problem.operation->name), "", {}};
  if (problem.operation == &backward_operation)
    if (const auto verdict = consult_gradients(oracle, problem, run)) return *verdict;
  Consultation consultation(problem, run);
  switch (oracle) {
    case Oracle::zero_queries:
      return consultation.zero_queries();
    case Oracle::unit_values:
      return consultation.unit_values();
    case Oracle::key_order:
      return consultation.key_order();
    case Oracle::head_order:
      return consultation.head_order();
    case Oracle::batch_order:
      return consultation.batch_order();
    case Oracle::layout:
      return consultation.layout();
    case Oracle::split:
      return consultation.split();
    case Oracle::halves:
      return consultation.halves();
    case Oracle::nothing_arrives:
      return consultation.nothing_arrives();
    case Oracle::twice_arrives:
      return consultation.twice_arrives();
    case Oracle::key_sums:
      break;  // of gradients alone
  }
  return {};
}

}  // namespace attune::lab
