#include "lab/check/inputs.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cmath>

#include "core/convert.hpp"
#include "core/error.hpp"
#include "lab/check/lengths.hpp"
#include "lab/check/method.hpp"
#include "lab/stats/random.hpp"

namespace attune::lab {
namespace {

using stats::Random;

enum class Part : uint64_t { q = 1, k, v, bias, mask, sink, lengths, channel, dout, dlse };

uint64_t seed_of(uint64_t seed, Part part, int64_t batch, int64_t head) {
  const uint64_t key[3] = {static_cast<uint64_t>(part), static_cast<uint64_t>(batch), static_cast<uint64_t>(head)};
  return XXH3_64bits_withSeed(key, sizeof key, seed);
}

double sign_of(Random& random) { return random.below(2) == 0 ? 1.0 : -1.0; }

// Student's t with 2 degrees of freedom, cut where fp16 still has room for a dot product's partner.
double heavy_tailed(Random& random) {
  const double spread = std::sqrt(-std::log(1 - random.uniform()));
  return std::clamp(random.normal() / std::max(spread, 1e-6), -1e4, 1e4);
}

double smallest_normal(Dtype dtype) { return dtype == Dtype::f16 ? 0x1p-14 : 0x1p-126; }

// What the kinds need to know of the problem.
struct Recipe {
  InputKind kind;
  uint64_t seed;
  Dtype dtype;
  double scale;
  int64_t dim_qk;
  int64_t seq_k;

  int64_t outlier(int64_t dim) const {
    return static_cast<int64_t>(seed_of(seed, Part::channel, 0, 0) % static_cast<uint64_t>(dim));
  }

  // The size of channel 0 of q and k at which scale * q * k is 1e5, within the range of fp16.
  double far_channel() const { return scale == 0 ? 1 : std::min(std::sqrt(1e5 / std::abs(scale)), 3e4); }

  // Every key is j times one direction, and every query has about the same product with that direction, so that the
  // logits climb to `top` over the sequence.
  static double direction(int64_t channel) { return 1 + 0.5 * std::sin(static_cast<double>(channel) * 2.4); }
  double rising_step() const {
    const double top = std::min(0.7 * static_cast<double>(seq_k), 600.0);
    if (scale == 0) return 1 / static_cast<double>(seq_k);
    return top / (scale * static_cast<double>(dim_qk * seq_k));
  }
};

// Writes one row of `dim` values by calling value(channel).
template <typename Value>
void put_row(void* data, Dtype dtype, int64_t offset, int64_t dim, Value&& value) {
  for (int64_t c = 0; c < dim; ++c) store_element(data, dtype, offset + c, static_cast<float>(value(c)));
}

double q_value(const Recipe& r, Random& random, int64_t channel) {
  switch (r.kind) {
    case InputKind::heavy_tailed:
      return heavy_tailed(random);
    case InputKind::far_negative:
      return channel == 0 ? (r.scale < 0 ? 1 : -1) * r.far_channel() : random.normal();
    case InputKind::rising_max:
      return 0.5 + random.uniform();
    case InputKind::denormals:
      return sign_of(random) * random.uniform() * smallest_normal(r.dtype);
    case InputKind::extremes:
      return sign_of(random) * (random.below(4) == 0 ? 65504 : 65504 * random.uniform());
    default:
      return random.normal();
  }
}

double k_value(const Recipe& r, Random& random, int64_t row, int64_t channel) {
  switch (r.kind) {
    case InputKind::heavy_tailed:
      return heavy_tailed(random);
    case InputKind::outlier_channel:
      return random.normal() * (channel == r.outlier(r.dim_qk) ? 1000 : 1);
    case InputKind::far_negative:
      return channel == 0 ? r.far_channel() : random.normal();
    case InputKind::rising_max:
      return static_cast<double>(row + 1) * r.rising_step() * Recipe::direction(channel);
    case InputKind::denormals:
      return sign_of(random) * random.uniform() * smallest_normal(r.dtype);
    case InputKind::extremes:
      return sign_of(random) * random.uniform() * 0x1p-14;
    default:
      return random.normal();
  }
}

double v_value(const Recipe& r, Random& random, int64_t dim_v, int64_t channel) {
  switch (r.kind) {
    case InputKind::heavy_tailed:
      return heavy_tailed(random);
    case InputKind::outlier_channel:
      return random.normal() * (channel == r.outlier(dim_v) ? 1000 : 1);
    case InputKind::denormals:
      return sign_of(random) * random.uniform() * smallest_normal(r.dtype);
    case InputKind::extremes:
      // Short of the largest number: a row sum kept in float32 beside 16-bit weights may exceed 1 by half an ulp.
      return sign_of(random) * (16384 + 47104 * random.uniform());
    default:
      return random.normal();
  }
}

// Small where the values are at the top of fp16, so that the gradients stay within it.
double dout_value(const Recipe& r, Random& random) {
  switch (r.kind) {
    case InputKind::heavy_tailed:
      return std::clamp(heavy_tailed(random), -100.0, 100.0);
    case InputKind::extremes:
      return random.normal() * 0x1p-18;
    default:
      return random.normal();
  }
}

void fill_lengths(Tensors& t, const Lengths& lengths) {
  const auto put = [&](Operand operand, const std::vector<int32_t>& values) {
    if (!values.empty()) std::ranges::copy(values, t[operand].as<int32_t>());
  };
  put(Operand::cu_seqlens_q, lengths.cu_seqlens_q);
  put(Operand::cu_seqlens_k, lengths.cu_seqlens_k);
  put(Operand::used_q, lengths.used_q);
  put(Operand::used_k, lengths.used_k);
}

void fill_queries(Tensors& t, const Recipe& r, int64_t b, int64_t head) {
  const Problem& p = t.problem;
  const Sequence s = t.sequence(b);
  Random random(seed_of(r.seed, Part::q, b, head));
  for (int64_t row = 0; row < s.seq_q; ++row)
    put_row(t[Operand::q].data(), p.dtype, row_offset(p, p.q, b, s.first_row_q, row, head), p.dim_qk,
            [&](int64_t c) { return q_value(r, random, c); });
}

void fill_keys_and_values(Tensors& t, const Recipe& r, int64_t b, int64_t head) {
  const Problem& p = t.problem;
  const Sequence s = t.sequence(b);
  Random random_k(seed_of(r.seed, Part::k, b, head));
  Random random_v(seed_of(r.seed, Part::v, b, head));
  for (int64_t row = 0; row < s.seq_k; ++row) {
    if (r.kind == InputKind::equal_logits) random_k = Random(seed_of(r.seed, Part::k, b, head));
    put_row(t[Operand::k].data(), p.dtype, row_offset(p, p.k, b, s.first_row_k, row, head), p.dim_qk,
            [&](int64_t c) { return k_value(r, random_k, row, c); });
    put_row(t[Operand::v].data(), p.dtype, row_offset(p, p.v, b, s.first_row_k, row, head), p.dim_v,
            [&](int64_t c) { return v_value(r, random_v, p.dim_v, c); });
  }
}

// Calls put(offset, batch, query, key) for every element of a bias or mask, broadcast dimensions once.
template <typename Put>
void for_each_score(const Problem& p, const attune_score_strides& s, Put&& put) {
  const auto count = [](int64_t stride, int64_t extent) { return stride == 0 ? std::min<int64_t>(extent, 1) : extent; };
  for (int64_t b = 0; b < count(s.batch, p.batch); ++b)
    for (int64_t h = 0; h < count(s.head, p.heads_q); ++h)
      for (int64_t i = 0; i < count(s.query, p.seq_q); ++i)
        for (int64_t j = 0; j < count(s.key, p.seq_k); ++j)
          put(b * s.batch + h * s.head + i * s.query + j * s.key, b, i, j);
}

void fill_mask(Tensors& t, const Recipe& r, const Lengths& lengths) {
  const Problem& p = t.problem;
  auto* const mask = t[Operand::mask].as<uint8_t>();
  if (!lengths.padding.empty()) {
    for_each_score(p, p.mask, [&](int64_t offset, int64_t batch, int64_t, int64_t key) {
      mask[offset] = padding_shows(p, lengths.padding[static_cast<size_t>(batch)], key) ? 1 : 0;
    });
    return;
  }
  // A quarter of the keys is hidden, and every seventh row sees nothing. Any byte but 0 shows a key.
  Random random(seed_of(r.seed, Part::mask, 0, 0));
  const bool by_row = p.mask.query != 0;
  for_each_score(p, p.mask, [&](int64_t offset, int64_t, int64_t query, int64_t) {
    const bool visible = random.below(4) != 0 && !(by_row && query % 7 == 3);
    mask[offset] = visible ? static_cast<uint8_t>(1 + random.below(255)) : 0;
  });
}

void fill_score_terms(Tensors& t, const Recipe& r, const Lengths& lengths) {
  const Problem& p = t.problem;
  if (p.has(ATTUNE_BIAS)) {
    Random random(seed_of(r.seed, Part::bias, 0, 0));
    const double size = r.kind == InputKind::equal_logits ? 0 : 1;
    for_each_score(p, p.bias, [&](int64_t offset, int64_t, int64_t, int64_t) {
      store_element(t[Operand::bias].data(), p.bias_dtype, offset, static_cast<float>(size * random.normal()));
    });
  }
  if (p.has(ATTUNE_MASK)) fill_mask(t, r, lengths);
  if (p.has(ATTUNE_SINK)) {
    Random random(seed_of(r.seed, Part::sink, 0, 0));
    for (int64_t h = 0; h < p.heads_q; ++h) t[Operand::sink].as<float>()[h] = static_cast<float>(2 * random.normal());
  }
}

}  // namespace

std::string_view name_of(InputKind kind) {
  switch (kind) {
    case InputKind::normal:
      return "normal";
    case InputKind::heavy_tailed:
      return "heavy-tailed";
    case InputKind::outlier_channel:
      return "outlier-channel";
    case InputKind::equal_logits:
      return "equal-logits";
    case InputKind::far_negative:
      return "far-negative";
    case InputKind::rising_max:
      return "rising-max";
    case InputKind::denormals:
      return "denormals";
    case InputKind::extremes:
      return "extremes";
    case InputKind::timed:
      return "timed";
  }
  return "?";
}

InputKind input_kind_from(std::string_view name) {
  std::string known;
  for (const InputKind kind : all_input_kinds) {
    if (name_of(kind) == name) return kind;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", name_of(kind));
  }
  fail(ATTUNE_INVALID_ARGUMENT, "input is '{}'; the kinds are {}", name, known);
}

uint64_t derive_seed(uint64_t seed, uint64_t part) { return XXH3_64bits_withSeed(&part, sizeof part, seed); }

Tensors make_inputs(const Problem& problem, InputKind kind, uint64_t seed, Storage storage, cpu::Threads& threads) {
  Tensors tensors = allocate(problem, storage);
  check_method_of(problem).fill(tensors, kind, seed, threads);
  return tensors;
}

void fill_attention(Tensors& t, InputKind kind, uint64_t seed, cpu::Threads& threads) {
  const Problem& p = t.problem;
  Random random(seed_of(seed, Part::lengths, 0, 0));
  const Lengths lengths = kind == InputKind::timed ? timed_lengths(p) : checked_lengths(p, random);
  fill_lengths(t, lengths);
  const Recipe recipe{kind, seed, p.dtype, p.scale, p.dim_qk, std::max<int64_t>(p.seq_k, 1)};
  threads.parallel_for(p.batch * p.heads_q, [&](int64_t i) { fill_queries(t, recipe, i / p.heads_q, i % p.heads_q); });
  threads.parallel_for(p.batch * p.heads_kv,
                       [&](int64_t i) { fill_keys_and_values(t, recipe, i / p.heads_kv, i % p.heads_kv); });
  fill_score_terms(t, recipe, lengths);
}

void fill_arriving_gradients(Tensors& t, InputKind kind, uint64_t seed, cpu::Threads& threads) {
  const Problem& p = t.problem;
  const Recipe recipe{kind, seed, p.dtype, p.scale, p.dim_qk, std::max<int64_t>(p.seq_k, 1)};
  threads.parallel_for(p.batch * p.heads_q, [&](int64_t index) {
    const int64_t b = index / p.heads_q, head = index % p.heads_q;
    const Sequence s = t.sequence(b);
    Random random(seed_of(seed, Part::dout, b, head)), random_lse(seed_of(seed, Part::dlse, b, head));
    for (int64_t row = 0; row < s.seq_q; ++row) {
      put_row(t[Operand::dout].data(), p.dtype, row_offset(p, p.dout, b, s.first_row_q, row, head), p.dim_v,
              [&](int64_t) { return dout_value(recipe, random); });
      if (p.has(ATTUNE_DLSE))
        t[Operand::dlse].as<float>()[row_offset(p, p.dlse, b, s.first_row_q, row, head)] =
            static_cast<float>(random_lse.normal());
    }
  });
}

}  // namespace attune::lab
