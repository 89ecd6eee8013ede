// A plain blocked kernel with switchable mistakes: each is one that fused attention kernels have really had. Without a
// mistake it is right, which the tests hold against it too: a check that fails everything would catch every mistake.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numbers>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "core/convert.hpp"
#include "core/visibility.hpp"
#include "dispatch/context.hpp"
#include "dispatch/kernel.hpp"

namespace attune::mutants {

enum class Mistake {
  none,
  lost_key_tile,       // the second tile of keys is skipped
  double_key,          // the last key of a full tile is taken twice
  missed_rescale,      // O is not rescaled when the maximum grows
  missed_sum_rescale,  // neither is the row sum
  causal_off_by_one,   // a row sees one key too many
  window_off_by_one,   // the left edge of the window is exclusive
  top_left,            // bottom-right causality is taken for top-left
  bottom_right,        // and the other way round
  tail_counted,        // keys past the end of the last tile count with score 0
  head_modulo,         // query heads are dealt to KV heads by remainder
  stale_lse,           // the LSE misses what the last tile added to the sum
  lse_base_2,          // the LSE is a logarithm to base 2
  lse_without_sink,    // the sink joins the denominator but not the LSE
  ignored_sink,
  ignored_scale,
  ignored_softcap,
  softcap_after_bias,
  ignored_mask,
  bias_of_first_head,     // a bias per head is read as one for all
  ignored_used_keys,      // rows past the used length are taken for keys
  finite_minus_infinity,  // the running maximum begins at -1e4
  empty_row_divides,      // an empty row divides 0 by 0
  sixteen_bit_sum,        // O is accumulated in the input dtype
  coarse_weights,         // p is rounded to bf16 whatever the dtype
  truncated_output,       // O is cut off, not rounded
  dense_strides,          // heads are taken to lie next to each other
  rounded_up_store,       // whole groups of 8 channels are stored
  split_by_threads,       // keys are summed in as many parts as there are threads
  far_keys_skipped,       // a tile of keys behind the 32768th is skipped
  bias_read_forwards,     // a bias whose keys run backwards in memory is read forwards
  sink_per_split,         // the sink joins once for every 1024 keys
  bf16_row_sum,           // bf16 alone: the sum that divides O is rounded to bf16
  coarse_exp2,            // 16-bit types alone: a coefficient of the polynomial of exp2 is off by 1e-4
  lost_scale_sign,        // a negative scale counts as positive under a softcap
  lowest_mask_bit,        // of a byte of the mask only the lowest bit counts
};

inline constexpr std::array all_mistakes{
    Mistake::lost_key_tile,      Mistake::double_key,         Mistake::missed_rescale,
    Mistake::missed_sum_rescale, Mistake::causal_off_by_one,  Mistake::window_off_by_one,
    Mistake::top_left,           Mistake::bottom_right,       Mistake::tail_counted,
    Mistake::head_modulo,        Mistake::stale_lse,          Mistake::lse_base_2,
    Mistake::lse_without_sink,   Mistake::ignored_sink,       Mistake::ignored_scale,
    Mistake::ignored_softcap,    Mistake::softcap_after_bias, Mistake::ignored_mask,
    Mistake::bias_of_first_head, Mistake::ignored_used_keys,  Mistake::finite_minus_infinity,
    Mistake::empty_row_divides,  Mistake::sixteen_bit_sum,    Mistake::coarse_weights,
    Mistake::truncated_output,   Mistake::dense_strides,      Mistake::rounded_up_store,
    Mistake::split_by_threads,   Mistake::far_keys_skipped,   Mistake::bias_read_forwards,
    Mistake::sink_per_split,     Mistake::bf16_row_sum,       Mistake::coarse_exp2,
    Mistake::lost_scale_sign,    Mistake::lowest_mask_bit};

constexpr std::string_view name_of(Mistake mistake) {
  constexpr std::array names{"none",
                             "lost_key_tile",
                             "double_key",
                             "missed_rescale",
                             "missed_sum_rescale",
                             "causal_off_by_one",
                             "window_off_by_one",
                             "top_left",
                             "bottom_right",
                             "tail_counted",
                             "head_modulo",
                             "stale_lse",
                             "lse_base_2",
                             "lse_without_sink",
                             "ignored_sink",
                             "ignored_scale",
                             "ignored_softcap",
                             "softcap_after_bias",
                             "ignored_mask",
                             "bias_of_first_head",
                             "ignored_used_keys",
                             "finite_minus_infinity",
                             "empty_row_divides",
                             "sixteen_bit_sum",
                             "coarse_weights",
                             "truncated_output",
                             "dense_strides",
                             "rounded_up_store",
                             "split_by_threads",
                             "far_keys_skipped",
                             "bias_read_forwards",
                             "sink_per_split",
                             "bf16_row_sum",
                             "coarse_exp2",
                             "lost_scale_sign",
                             "lowest_mask_bit"};
  static_assert(names.size() == all_mistakes.size() + 1);
  return names[static_cast<size_t>(mistake)];
}

inline float rounded(Dtype dtype, float value) {
  if (dtype == Dtype::f16) return f16_to_float(float_to_f16(value));
  return dtype == Dtype::bf16 ? bf16_to_float(float_to_bf16(value)) : value;
}

class WrongPlan final : public Plan {
 public:
  WrongPlan(const Kernel& of_kernel, const Problem& of_problem, Mistake mistake, Context& context)
      : Plan(of_kernel, of_problem), mistake_(mistake), context_(context) {}

  void run(const Operands& operands, void*) const override {
    context_.threads().parallel_for(problem.batch * problem.heads_q,
                                    [&](int64_t i) { run_head(operands, i / problem.heads_q, i % problem.heads_q); });
  }

 private:
  static constexpr int64_t tile_keys = 64;
  static constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

  // What an online softmax carries from tile to tile.
  struct Running {
    float max = minus_infinity;  // of the exponents of 2
    float sum = 0, sum_before_last_tile = 0, sum_without_sink = 0;
    std::vector<float> o;
  };

  // One query head. Its keys and values are converted once: every row reads them.
  struct Head {
    int64_t b, h;
    Sequence s;
    std::vector<float> k, v;
  };

  bool is(Mistake mistake) const { return mistake_ == mistake; }

  void run_head(const Operands& operands, int64_t b, int64_t h) const {
    Head head{b, h, sequence_of(problem, operands, b), {}, {}};
    const Sequence& s = head.s;
    if (is(Mistake::ignored_used_keys) && !problem.packed()) head.s.seq_k = problem.seq_k;
    const int64_t h_kv = is(Mistake::head_modulo) ? h % problem.heads_kv : h / problem.group();
    for (int64_t key = 0; key < s.seq_k; ++key) {
      append(head.k, operands.in(Operand::k), at(problem.k, b, s.first_row_k + key, h_kv, problem.dim_qk),
             problem.dim_qk);
      append(head.v, operands.in(Operand::v), at(problem.v, b, s.first_row_k + key, h_kv, problem.dim_v),
             problem.dim_v);
    }
    for (int64_t row = 0; row < s.stored_q; ++row) run_row(operands, head, row);
  }

  void append(std::vector<float>& values, const void* data, int64_t offset, int64_t dim) const {
    for (int64_t c = 0; c < dim; ++c) values.push_back(load_element(data, problem.dtype, offset + c));
  }

  KeyRange visible(const Sequence& s, int64_t row) const {
    Problem seen = problem;
    if (is(Mistake::top_left) && problem.causal == Causal::bottom_right) seen.causal = Causal::top_left;
    if (is(Mistake::bottom_right) && problem.causal == Causal::top_left) seen.causal = Causal::bottom_right;
    if (is(Mistake::window_off_by_one) && seen.window_left > 0) --seen.window_left;
    KeyRange range = visible_keys(seen, row, s.seq_q, s.seq_k);
    if (is(Mistake::causal_off_by_one) && problem.causal != Causal::none) range.end = std::min(range.end + 1, s.seq_k);
    return range;
  }

  // The score before the factor that turns it into an exponent of 2: one fma takes off the maximum and applies it.
  float score(const Operands& operands, const Head& head, const std::vector<float>& q, int64_t row, int64_t key) const {
    const float* k = &head.k[static_cast<size_t>(key * problem.dim_qk)];
    const float sum = std::transform_reduce(q.begin(), q.end(), k, 0.0f);
    if (plain()) return sum;
    float z = sum * scale();
    const bool capped = problem.softcap != 0 && !is(Mistake::ignored_softcap);
    const auto cap = [&](float x) { return problem.softcap * std::tanh(x / problem.softcap); };
    if (capped && !is(Mistake::softcap_after_bias)) z = cap(z);
    if (problem.has(ATTUNE_BIAS)) {
      const int64_t h = is(Mistake::bias_of_first_head) ? 0 : head.h;
      const bool forwards = is(Mistake::bias_read_forwards) && problem.bias.key < 0;
      z += load_element(operands.in(Operand::bias), problem.bias_dtype,
                        at(problem.bias, head.b, h, row, forwards ? problem.seq_k - 1 - key : key));
    }
    if (capped && is(Mistake::softcap_after_bias)) z = cap(z);
    return z;
  }

  float scale() const {
    if (is(Mistake::lost_scale_sign) && problem.softcap != 0) return std::abs(problem.scale);
    return is(Mistake::ignored_scale) ? 1 : problem.scale;
  }
  bool plain() const { return problem.softcap == 0 && !problem.has(ATTUNE_BIAS); }
  float factor() const {
    return static_cast<float>((plain() ? static_cast<double>(scale()) : 1.0) * std::numbers::log2e);
  }

  bool hidden(const Operands& operands, int64_t b, int64_t h, int64_t row, int64_t key) const {
    if (!problem.has(ATTUNE_MASK) || is(Mistake::ignored_mask)) return false;
    const uint8_t byte = operands.in<uint8_t>(Operand::mask)[at(problem.mask, b, h, row, key)];
    return is(Mistake::lowest_mask_bit) ? byte % 2 == 0 : byte == 0;
  }

  void take_tile(Running& r, const Operands& operands, const Head& head, const std::vector<float>& q, int64_t row,
                 int64_t begin, int64_t end) const {
    struct Scored {
      int64_t key;
      float score;
    };
    std::vector<Scored> keys;
    float max = r.max;
    for (int64_t key = begin; key < end; ++key) {
      if (hidden(operands, head.b, head.h, row, key)) continue;
      keys.push_back({key, score(operands, head, q, row, key)});
      max = std::max(max, keys.back().score * factor());
    }
    if (max == minus_infinity) return;
    const float rescale = std::exp2(r.max - max);
    r.max = max;
    if (!is(Mistake::missed_sum_rescale)) r.sum *= rescale;
    if (!is(Mistake::missed_rescale))
      for (float& x : r.o) x *= rescale;
    r.sum_before_last_tile = r.sum;
    for (const auto& [key, z] : keys) {
      add_key(r, head, key, z);
      if (is(Mistake::double_key) && key == begin + tile_keys - 1) add_key(r, head, key, z);
    }
    if (is(Mistake::tail_counted) && end == head.s.seq_k)
      r.sum += static_cast<float>((tile_keys - end % tile_keys) % tile_keys) * std::exp2(0 - max);
  }

  // As where 2^t is 2^floor(t) times a polynomial of the rest.
  float exp2_of(float t) const {
    const float exact = std::exp2(t);
    if (!is(Mistake::coarse_exp2) || problem.dtype == Dtype::f32 || t == minus_infinity) return exact;
    const float whole = std::floor(t), rest = t - whole;
    return exact + std::exp2(whole) * 1e-4f * rest * rest * rest;
  }

  void add_key(Running& r, const Head& head, int64_t key, float z) const {
    const float weight = exp2_of(std::fma(z, factor(), -r.max));
    if (weight == 0) return;
    r.sum += weight;
    const float p = is(Mistake::coarse_weights) ? bf16_to_float(float_to_bf16(weight)) : rounded(problem.dtype, weight);
    const float* v = &head.v[static_cast<size_t>(key * problem.dim_v)];
    for (float& sum : r.o) {
      sum += p * *v++;
      if (is(Mistake::sixteen_bit_sum)) sum = rounded(problem.dtype, sum);
    }
  }

  void run_row(const Operands& operands, const Head& head, int64_t row) const {
    const Sequence& s = head.s;
    std::vector<float> q;
    append(q, operands.in(Operand::q), at(problem.q, head.b, s.first_row_q + row, head.h, problem.dim_qk),
           problem.dim_qk);
    Running r;
    r.o.assign(static_cast<size_t>(problem.dim_v), 0);
    if (is(Mistake::finite_minus_infinity)) r.max = -1e4f;
    const KeyRange range = row < s.seq_q ? visible(s, row) : KeyRange{};
    const int64_t parts = is(Mistake::split_by_threads) ? context_.threads().size() : 1;
    const int64_t step = tile_keys / std::min<int64_t>(parts, tile_keys);
    for (int64_t begin = range.begin; begin < range.end; begin += step) {
      if (is(Mistake::lost_key_tile) && begin == range.begin + tile_keys) continue;
      if (is(Mistake::far_keys_skipped) && begin / (2 * tile_keys) == 32768 / (2 * tile_keys)) continue;
      take_tile(r, operands, head, q, row, begin, std::min(begin + step, range.end));
    }
    r.sum_without_sink = r.sum;
    const bool in_use = row < s.seq_q;
    if (problem.has(ATTUNE_SINK) && in_use && !is(Mistake::ignored_sink))
      join_sink(r, operands.in<float>(Operand::sink)[head.h],
                is(Mistake::sink_per_split) ? static_cast<float>((s.seq_k + 1023) / 1024) : 1);
    store(r, operands, head.b, s.first_row_q + row, head.h);
  }

  void join_sink(Running& r, float sink, float times) const {
    const float exponent = sink * static_cast<float>(std::numbers::log2e);
    const float max = std::max(r.max, exponent);
    const float rescale = r.max == minus_infinity ? 0 : std::exp2(r.max - max);
    const float weight = times * std::exp2(exponent - max);
    r.sum_without_sink = r.sum * rescale;
    r.sum = r.sum_without_sink + weight;
    r.sum_before_last_tile = r.sum_before_last_tile * rescale + weight;
    for (float& x : r.o) x *= rescale;
    r.max = max;
  }

  void store(const Running& r, const Operands& operands, int64_t b, int64_t row, int64_t h) const {
    const bool empty = r.sum == 0 && !is(Mistake::empty_row_divides);
    const int64_t o = at(problem.o, b, row, h, problem.dim_v);
    const bool coarse_sum = is(Mistake::bf16_row_sum) && problem.dtype == Dtype::bf16;
    const float divisor = coarse_sum ? rounded(Dtype::bf16, r.sum) : r.sum;
    int64_t stored = problem.dim_v;
    if (is(Mistake::rounded_up_store)) stored = std::min<int64_t>((stored + 7) / 8 * 8, stored + 3);
    for (int64_t c = 0; c < stored; ++c) {
      float x = c < problem.dim_v && !empty ? r.o[static_cast<size_t>(c)] / divisor : 0;
      if (is(Mistake::truncated_output)) x = cut_off(x);
      store_element(operands.out(Operand::o), problem.dtype, o + c, x);
    }
    if (!problem.has(ATTUNE_LSE)) return;
    float sum = r.sum;
    if (is(Mistake::stale_lse)) sum = r.sum_before_last_tile;
    if (is(Mistake::lse_without_sink)) sum = r.sum_without_sink;
    float lse = empty ? minus_infinity : (r.max + std::log2(sum));
    if (!is(Mistake::lse_base_2)) lse *= static_cast<float>(std::numbers::ln2);
    operands.out<float>(Operand::lse)[at(problem.lse, b, row, h, problem.lse.head)] = lse;
  }

  // Towards zero, in the output dtype.
  float cut_off(float x) const {
    const float near = rounded(problem.dtype, x);
    if (std::abs(near) <= std::abs(x)) return near;
    const int digits = problem.dtype == Dtype::f16 ? 11 : problem.dtype == Dtype::bf16 ? 8 : 24;
    return near - std::copysign(std::ldexp(1.0f, std::ilogb(x) - digits + 1), x);
  }

  int64_t at(const attune_strides& s, int64_t b, int64_t row, int64_t head, int64_t dim) const {
    const int64_t head_stride = is(Mistake::dense_strides) ? std::min(s.head, dim) : s.head;
    return (problem.packed() ? 0 : b * s.batch) + row * s.row + head * head_stride;
  }

  static int64_t at(const attune_score_strides& s, int64_t b, int64_t h, int64_t row, int64_t key) {
    return b * s.batch + h * s.head + row * s.query + key * s.key;
  }

  const Mistake mistake_;
  Context& context_;
};

class WrongKernel final : public Kernel {
 public:
  explicit WrongKernel(Mistake mistake)
      : mistake_(mistake), name_("mutant/" + std::string(mutants::name_of(mistake))) {}

  std::string_view name() const override { return name_; }
  DeviceKind device_kind() const override { return DeviceKind::cpu; }
  bool selectable() const override { return false; }
  std::string refusal(const Problem&, const Context&) const override { return {}; }
  double predicted_seconds(const Problem&, const Context&) const override { return 1; }
  std::unique_ptr<const Plan> plan(const Problem& problem, Context& context) const override {
    return std::make_unique<WrongPlan>(*this, problem, mistake_, context);
  }

 private:
  Mistake mistake_;
  std::string name_;
};

}  // namespace attune::mutants
