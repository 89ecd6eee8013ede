// Each deliberately wrong backward is caught by the gate or an oracle at the checks of gradients that `attune check
// --all` makes; the same kernel without a mistake passes them all.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "core/convert.hpp"
#include "lab/check/backend.hpp"
#include "lab/check/report.hpp"
#include "tests/support/budget.hpp"

namespace attune::lab {
namespace {

enum class Wrong {
  nothing,
  lost_key_tile,       // dq misses keys 64 to 127
  lost_row_tile,       // dk and dv miss rows 64 to 127
  lost_last_row,       // dk and dv miss the last row
  missing_delta,       // what the softmax takes back is forgotten
  delta_without_dlse,  // what arrives at the LSE is ignored
  scale_twice,
  scale_forgotten,    // in dk
  lse_base_2,         // the LSE is read as a logarithm to base 2
  lost_group_head,    // dk and dv miss the last head of a group
  head_modulo,        // query heads are dealt to KV heads by remainder
  window_off_by_one,  // the left edge is exclusive
  causal_off_by_one,  // a row sees one key too many
  top_left,           // bottom-right causality is taken for top-left
  transposed_mask,    // rows and keys of the mask are swapped
  flat_softcap,       // the slope of the cap is left out
  bias_forgotten,     // in the scores
  dbias_of_one,       // the sum over what the bias broadcasts holds its last term alone
  dbias_scaled,       // dbias is that of the product
  dsink_sign,
  dsink_of_first_batch,
  unwritten_tail,   // rows of dk that are not in use keep what they held
  tail_in_use,      // keys past the used length get gradients
  coarse_weights,   // p and its gradient are rounded to bf16 whatever the dtype
  sixteen_bit_sum,  // dk and dv are summed in the input dtype
};

constexpr std::array mistakes{
    Wrong::lost_key_tile,      Wrong::lost_row_tile,   Wrong::lost_last_row,     Wrong::missing_delta,
    Wrong::delta_without_dlse, Wrong::scale_twice,     Wrong::scale_forgotten,   Wrong::lse_base_2,
    Wrong::lost_group_head,    Wrong::head_modulo,     Wrong::window_off_by_one, Wrong::causal_off_by_one,
    Wrong::top_left,           Wrong::transposed_mask, Wrong::flat_softcap,      Wrong::bias_forgotten,
    Wrong::dbias_of_one,       Wrong::dbias_scaled,    Wrong::dsink_sign,        Wrong::dsink_of_first_batch,
    Wrong::unwritten_tail,     Wrong::tail_in_use,     Wrong::coarse_weights,    Wrong::sixteen_bit_sum};

std::string name_of_wrong(Wrong mistake) {
  constexpr std::array names{"nothing",           "lost_key_tile",   "lost_row_tile",
                             "lost_last_row",     "missing_delta",   "delta_without_dlse",
                             "scale_twice",       "scale_forgotten", "lse_base_2",
                             "lost_group_head",   "head_modulo",     "window_off_by_one",
                             "causal_off_by_one", "top_left",        "transposed_mask",
                             "flat_softcap",      "bias_forgotten",  "dbias_of_one",
                             "dbias_scaled",      "dsink_sign",      "dsink_of_first_batch",
                             "unwritten_tail",    "tail_in_use",     "coarse_weights",
                             "sixteen_bit_sum"};
  return names[static_cast<size_t>(mistake)];
}

using Numbers = std::vector<double>;

// Plain loops over rows and keys, in float64 but for what is rounded on purpose.
class WrongBackwardPlan final : public Plan {
 public:
  WrongBackwardPlan(const Kernel& of_kernel, const Problem& of_problem, Wrong mistake)
      : Plan(of_kernel, of_problem), wrong_(mistake) {}

  void run(const Operands& operands, void*) const override {
    const Problem& p = problem;
    Numbers dsink(static_cast<size_t>(p.heads_q));
    std::map<int64_t, double> dbias;
    for (int64_t b = 0; b < p.batch; ++b) run_batch(operands, b, dsink, dbias);
    if (p.has(ATTUNE_DSINK))
      for (int64_t h = 0; h < p.heads_q; ++h)
        operands.out<float>(Operand::dsink)[h] = static_cast<float>(dsink[static_cast<size_t>(h)]);
    if (!p.has(ATTUNE_DBIAS)) return;
    for (int64_t b = 0; b < p.batch; ++b)
      for (int64_t h = 0; h < p.heads_q; ++h)
        for (int64_t i = 0; i < p.seq_q; ++i)
          for (int64_t j = 0; j < p.seq_k; ++j) {
            const int64_t at = score_at(p.dbias, b, h, i, j);
            const auto found = dbias.find(at);
            store_element(operands.out(Operand::dbias), p.bias_dtype, at,
                          static_cast<float>(found == dbias.end() ? 0 : found->second));
          }
  }

 private:
  static int64_t score_at(const attune_score_strides& s, int64_t b, int64_t h, int64_t i, int64_t j) {
    return b * s.batch + h * s.head + i * s.query + j * s.key;
  }
  int64_t at(const attune_strides& s, int64_t b, int64_t row, int64_t head) const {
    return (problem.packed() ? 0 : b * s.batch) + row * s.row + head * s.head;
  }
  bool is(Wrong mistake) const { return wrong_ == mistake; }

  Numbers row_of_tensor(const Operands& o, Operand operand, const attune_strides& s, int64_t b, int64_t row,
                        int64_t head, int64_t dim) const {
    Numbers values;
    for (int64_t c = 0; c < dim; ++c)
      values.push_back(load_element(o.in(operand), problem.dtype, at(s, b, row, head) + c));
    return values;
  }
  void store_row(const Operands& o, Operand operand, const attune_strides& s, int64_t b, int64_t row, int64_t head,
                 const Numbers& values) const {
    for (size_t c = 0; c < values.size(); ++c)
      store_element(o.out(operand), problem.dtype, at(s, b, row, head) + static_cast<int64_t>(c),
                    static_cast<float>(values[c]));
  }
  static double dot(const Numbers& a, const Numbers& b) {
    double sum = 0;
    for (size_t c = 0; c < a.size(); ++c) sum += a[c] * b[c];
    return sum;
  }

  bool sees(const Operands& o, const Sequence& s, int64_t b, int64_t h, int64_t i, int64_t j) const {
    Problem p = problem;
    if (is(Wrong::top_left) && p.causal == Causal::bottom_right) p.causal = Causal::top_left;
    KeyRange range = visible_keys(p, i, s.seq_q, s.seq_k);
    if (is(Wrong::window_off_by_one) && p.window_left != unbounded) ++range.begin;
    if (is(Wrong::causal_off_by_one) && p.causal != Causal::none) range.end = std::min(range.end + 1, s.seq_k);
    if (j < range.begin || j >= range.end) return false;
    if (!p.has(ATTUNE_MASK)) return true;
    const bool swapped = is(Wrong::transposed_mask) && p.mask.query != 0 && i < p.seq_k && j < p.seq_q;
    return o.in<uint8_t>(Operand::mask)[score_at(p.mask, b, h, swapped ? j : i, swapped ? i : j)] != 0;
  }

  double coarse(double value) const {
    return is(Wrong::coarse_weights) ? bf16_to_float(float_to_bf16(static_cast<float>(value))) : value;
  }

  void add(Numbers& sum, double factor, const Numbers& values) const {
    for (size_t c = 0; c < sum.size(); ++c) {
      sum[c] += factor * values[c];
      if (!is(Wrong::sixteen_bit_sum) || problem.dtype == Dtype::f32) continue;
      const auto narrow = static_cast<float>(sum[c]);
      sum[c] = problem.dtype == Dtype::f16 ? f16_to_float(float_to_f16(narrow)) : bf16_to_float(float_to_bf16(narrow));
    }
  }

  void run_batch(const Operands& o, int64_t b, Numbers& dsink, std::map<int64_t, double>& dbias) const {
    const Problem& p = problem;
    Sequence s = sequence_of(p, o, b);
    if (is(Wrong::tail_in_use)) s.seq_k = s.stored_k;
    const auto keys = static_cast<size_t>(s.stored_k);
    std::vector<std::vector<Numbers>> dk(static_cast<size_t>(p.heads_kv)), dv(dk.size()), k(dk.size()), v(dk.size());
    for (int64_t kv = 0; kv < p.heads_kv; ++kv) {
      const auto g = static_cast<size_t>(kv);
      dk[g].assign(keys, Numbers(static_cast<size_t>(p.dim_qk)));
      dv[g].assign(keys, Numbers(static_cast<size_t>(p.dim_v)));
      for (int64_t j = 0; j < s.seq_k; ++j) {
        k[g].push_back(row_of_tensor(o, Operand::k, p.k, b, s.first_row_k + j, kv, p.dim_qk));
        v[g].push_back(row_of_tensor(o, Operand::v, p.v, b, s.first_row_k + j, kv, p.dim_v));
      }
    }
    for (int64_t h = 0; h < p.heads_q; ++h) {
      const auto g = static_cast<size_t>(is(Wrong::head_modulo) ? h % p.heads_kv : h / p.group());
      const bool head_counts = !is(Wrong::lost_group_head) || p.group() == 1 || h % p.group() != p.group() - 1;
      for (int64_t i = 0; i < s.stored_q; ++i) {
        Numbers dq(static_cast<size_t>(p.dim_qk));
        const int64_t row = s.first_row_q + i;
        const double lse = i < s.seq_q ? o.in<float>(Operand::lse)[at(p.lse, b, row, h)] : -HUGE_VAL;
        if (lse != -HUGE_VAL) {
          const Numbers q = row_of_tensor(o, Operand::q, p.q, b, row, h, p.dim_qk);
          const Numbers dout = row_of_tensor(o, Operand::dout, p.dout, b, row, h, p.dim_v);
          double delta =
              is(Wrong::missing_delta) ? 0 : dot(dout, row_of_tensor(o, Operand::o, p.o, b, row, h, p.dim_v));
          if (p.has(ATTUNE_DLSE) && !is(Wrong::delta_without_dlse))
            delta -= o.in<float>(Operand::dlse)[at(p.dlse, b, row, h)];
          if (p.has(ATTUNE_SINK) && !(is(Wrong::dsink_of_first_batch) && b > 0))
            dsink[static_cast<size_t>(h)] -=
                (is(Wrong::dsink_sign) ? -1 : 1) * std::exp(o.in<float>(Operand::sink)[h] - lse) * delta;
          for (int64_t j = 0; j < s.seq_k; ++j) {
            if (!sees(o, s, b, h, i, j)) continue;
            const auto key = static_cast<size_t>(j);
            double x = static_cast<double>(p.scale) * dot(q, k[g][key]), slope = 1;
            if (p.softcap != 0) {
              const double capped = std::tanh(x / static_cast<double>(p.softcap));
              x = static_cast<double>(p.softcap) * capped;
              if (!is(Wrong::flat_softcap)) slope = 1 - capped * capped;
            }
            if (p.has(ATTUNE_BIAS) && !is(Wrong::bias_forgotten))
              x += load_element(o.in(Operand::bias), p.bias_dtype, score_at(p.bias, b, h, i, j));
            const double weight = coarse(is(Wrong::lse_base_2) ? std::exp2(x - lse) : std::exp(x - lse));
            const double gradient = coarse(weight * (dot(dout, v[g][key]) - delta));
            double of_product = gradient * slope * static_cast<double>(p.scale);
            if (is(Wrong::scale_twice)) of_product *= static_cast<double>(p.scale);
            if (p.has(ATTUNE_DBIAS)) {
              double& sum = dbias[score_at(p.dbias, b, h, i, j)];
              const double term = is(Wrong::dbias_scaled) ? of_product : gradient;
              sum = is(Wrong::dbias_of_one) ? term : sum + term;
            }
            if (!is(Wrong::lost_key_tile) || j / 64 != 1)
              for (size_t c = 0; c < dq.size(); ++c) dq[c] += of_product * k[g][key][c];
            if (!head_counts || (is(Wrong::lost_row_tile) && i / 64 == 1) ||
                (is(Wrong::lost_last_row) && i == s.seq_q - 1))
              continue;
            add(dk[g][key], is(Wrong::scale_forgotten) ? gradient * slope : of_product, q);
            add(dv[g][key], weight, dout);
          }
        }
        store_row(o, Operand::dq, p.dq, b, row, h, dq);
      }
    }
    for (int64_t kv = 0; kv < p.heads_kv; ++kv)
      for (int64_t j = 0; j < (is(Wrong::unwritten_tail) ? s.seq_k : s.stored_k); ++j) {
        store_row(o, Operand::dk, p.dk, b, s.first_row_k + j, kv, dk[static_cast<size_t>(kv)][static_cast<size_t>(j)]);
        store_row(o, Operand::dv, p.dv, b, s.first_row_k + j, kv, dv[static_cast<size_t>(kv)][static_cast<size_t>(j)]);
      }
  }

  const Wrong wrong_;
};

class WrongBackward final : public Kernel {
 public:
  explicit WrongBackward(Wrong mistake) : name_("wrong-bwd/" + name_of_wrong(mistake)), mistake_(mistake) {}
  std::string_view name() const override { return name_; }
  DeviceKind device_kind() const override { return DeviceKind::cpu; }
  const Operation& operation() const override { return backward_operation; }
  bool selectable() const override { return false; }
  std::string refusal(const Problem&, const Context&) const override { return {}; }
  double predicted_seconds(const Problem&, const Context&) const override { return 1; }
  std::unique_ptr<const Plan> plan(const Problem& problem, Context&) const override {
    return std::make_unique<WrongBackwardPlan>(*this, problem, mistake_);
  }

 private:
  const std::string name_;
  const Wrong mistake_;
};

// Kernels are registered once per program.
void register_wrong_backwards() {
  static const bool done = [] {
    register_kernel(std::make_unique<WrongBackward>(Wrong::nothing));
    for (const Wrong mistake : mistakes) register_kernel(std::make_unique<WrongBackward>(mistake));
    return true;
  }();
  (void)done;
}

// What caught each mistake, and what the kernel without one failed.
struct BackwardHunt {
  std::map<Wrong, Outcome> caught;
  std::vector<std::string> control_failures;
  int control_checks = 0;

  BackwardHunt() {
    cpu::Threads threads(attune_options{});
    Backend backend = std::move(make_backends(threads).back());
    const std::vector<PlannedCheck> plan = plan_checks(*backend.executor, backend.all_budget, 1);
    register_wrong_backwards();
    std::vector<Wrong> at_large(mistakes.begin(), mistakes.end());
    for (const PlannedCheck& planned : plan) {
      if (planned.group != "backward") continue;
      std::vector<std::string> kernels{"wrong-bwd/nothing"};
      for (const Wrong mistake : at_large) kernels.push_back("wrong-bwd/" + name_of_wrong(mistake));
      Checker checker(*backend.executor, *backend.reference, threads,
                      test::small_budget() ? RowPolicy{0, 64} : planned.rows);
      const std::vector<Outcome> outcomes = checker.check(planned.what, kernels);
      ++control_checks;
      if (!outcomes[0].ok()) control_failures.push_back(failure_text(outcomes[0], planned.what));
      std::vector<Wrong> left;
      for (size_t i = 0; i < at_large.size(); ++i) {
        if (outcomes[i + 1].ok())
          left.push_back(at_large[i]);
        else
          caught[at_large[i]] = outcomes[i + 1];
      }
      at_large = left;
    }
  }
};

const BackwardHunt& backward_hunt() {
  static const BackwardHunt instance;
  return instance;
}

class BackwardMutants : public testing::TestWithParam<Wrong> {};

TEST_P(BackwardMutants, AreCaught) {
  const auto found = backward_hunt().caught.find(GetParam());
  ASSERT_NE(found, backward_hunt().caught.end()) << "passed all " << backward_hunt().control_checks << " checks";
  EXPECT_EQ(found->second.unsupported, "");
  std::cout << reproducer(found->second.of) << "\n  " << found->second.judgement.failure << "\n";
}

INSTANTIATE_TEST_SUITE_P(All, BackwardMutants, testing::ValuesIn(mistakes),
                         [](const auto& test) { return name_of_wrong(test.param); });

// What an oracle finds alone, without any reference.
bool is_found(Oracle oracle, Wrong mistake) {
  register_wrong_backwards();
  static cpu::Threads threads(attune_options{});
  static const auto executor = make_cpu_executor();
  return std::ranges::any_of(
      std::array{"bwd b2 h4/2 q100 k130 d64 f16", "bwd b1 h2/1 q130 k100 d64 f16 causal-br",
                 "bwd b1 h3/1 q65 k129 d40/72 f16 w8,3 dlse", "bwd b2 h2/1 q60 k80 d64 f16 mask=b1qk",
                 "bwd b2 h4/2 q80 k70 d32 f16 bias=1hqk dbias scale0.5"},
      [&](const char* problem) {
        const OracleRun run{*executor, threads,       frozen_accuracy(), {}, "wrong-bwd/" + name_of_wrong(mistake),
                            3,         Storage::dense};
        return !consult(oracle, parse_problem(problem), run).ok();
      });
}

struct Find {
  Oracle oracle;
  Wrong mistake;
};

constexpr std::array finds{
    Find{Oracle::zero_queries, Wrong::lost_row_tile},   Find{Oracle::zero_queries, Wrong::lost_group_head},
    Find{Oracle::zero_queries, Wrong::lse_base_2},      Find{Oracle::zero_queries, Wrong::window_off_by_one},
    Find{Oracle::zero_queries, Wrong::sixteen_bit_sum}, Find{Oracle::unit_values, Wrong::missing_delta},
    Find{Oracle::key_sums, Wrong::lost_last_row},       Find{Oracle::key_sums, Wrong::lost_group_head},
    Find{Oracle::key_sums, Wrong::window_off_by_one},   Find{Oracle::key_sums, Wrong::bias_forgotten},
    Find{Oracle::key_order, Wrong::lost_key_tile},      Find{Oracle::key_order, Wrong::transposed_mask},
    Find{Oracle::halves, Wrong::lost_key_tile},         Find{Oracle::halves, Wrong::top_left}};

class BackwardOracles : public testing::TestWithParam<Find> {};

TEST_P(BackwardOracles, FindAlone) { EXPECT_TRUE(is_found(GetParam().oracle, GetParam().mistake)); }

INSTANTIATE_TEST_SUITE_P(All, BackwardOracles, testing::ValuesIn(finds), [](const auto& test) {
  std::string name = fmt::format("{}_{}", name_of(test.param.oracle), name_of_wrong(test.param.mistake));
  std::ranges::replace(name, '-', '_');
  return name;
});

TEST(BackwardOracleControl, FindNothingWithoutAMistake) {
  for (const Oracle oracle : all_oracles) EXPECT_FALSE(is_found(oracle, Wrong::nothing)) << name_of(oracle);
}

TEST(BackwardMutantControl, PassesWithoutAMistake) {
  EXPECT_GT(backward_hunt().control_checks, 150);
  for (const std::string& failure : backward_hunt().control_failures) ADD_FAILURE() << failure;
}

}  // namespace
}  // namespace attune::lab
