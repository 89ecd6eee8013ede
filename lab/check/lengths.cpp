#include "lab/check/lengths.hpp"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

namespace attune::lab {
namespace {

using stats::Random;

constexpr uint64_t timed_seed = 1;
constexpr int64_t longest_over_shortest = 16;

// Lengths of at most `longest` that together fit into `total`.
using Draw = std::function<std::vector<int64_t>(Random&, int64_t batch, int64_t longest, int64_t total)>;

// Makes the sum of the lengths `total`, none above `longest`, by lengthening the first ones.
void fill_up(std::vector<int64_t>& lengths, int64_t longest, int64_t total) {
  int64_t left = total - std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  for (int64_t& length : lengths) {
    const int64_t more = std::min(longest - length, left);
    length += more;
    left -= more;
  }
}

std::vector<int64_t> draw_awkward(Random& random, int64_t batch, int64_t longest, int64_t total) {
  std::vector<int64_t> lengths;
  for (int64_t b = 0; b < batch; ++b)
    lengths.push_back(static_cast<int64_t>(random.below(static_cast<uint64_t>(longest) + 1)));
  if (batch > 0) lengths[0] = longest;
  if (batch > 1) lengths[1] = std::min<int64_t>(longest, 1);
  if (batch > 2) lengths[2] = 0;
  random.shuffle(lengths);
  int64_t left = total;
  for (int64_t& length : lengths) {
    length = std::min(length, left);
    left -= length;
  }
  // A total that is given, and not what all could need, is what they have.
  if (total < longest * batch) fill_up(lengths, longest, total);
  return lengths;
}

std::vector<int64_t> draw_served(Random& random, int64_t batch, int64_t longest, int64_t total) {
  const int64_t shortest = std::min(longest, std::max<int64_t>(1, longest / longest_over_shortest));
  std::vector<int64_t> lengths;
  for (int64_t b = 0; b < batch; ++b)
    lengths.push_back(shortest + static_cast<int64_t>(random.below(static_cast<uint64_t>(longest - shortest) + 1)));
  if (batch > 1) lengths[0] = longest;
  random.shuffle(lengths);
  if (total >= longest * batch) return lengths;
  const int64_t sum = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  for (int64_t& length : lengths) length = std::min(longest, length * total / std::max<int64_t>(sum, 1));
  fill_up(lengths, longest, total);
  return lengths;
}

std::vector<int32_t> offsets_of(const std::vector<int64_t>& lengths) {
  std::vector<int32_t> offsets{0};
  for (const int64_t length : lengths) offsets.push_back(offsets.back() + static_cast<int32_t>(length));
  return offsets;
}

std::vector<int32_t> used_of(const Problem& p, const std::vector<int64_t>& lengths,
                             const std::vector<int32_t>& offsets) {
  std::vector<int32_t> used;
  for (int64_t b = 0; b < p.batch; ++b) {
    const auto i = static_cast<size_t>(b);
    const int64_t most = p.packed() ? offsets[i + 1] - offsets[i] : lengths[i];
    used.push_back(static_cast<int32_t>(std::min(lengths[i], most)));
  }
  return used;
}

Lengths drawn(const Problem& p, Random& random, const Draw& draw, bool rows_are_keys) {
  Lengths lengths;
  if (p.packed()) {
    const std::vector<int64_t> rows = draw(random, p.batch, p.seq_q, p.total_q);
    lengths.cu_seqlens_q = offsets_of(rows);
    const bool shared = rows_are_keys && p.seq_q == p.seq_k && p.total_q == p.total_k;
    lengths.cu_seqlens_k = offsets_of(shared ? rows : draw(random, p.batch, p.seq_k, p.total_k));
  }
  if (p.has(ATTUNE_USED_Q))
    lengths.used_q = used_of(p, draw(random, p.batch, p.seq_q, p.seq_q * p.batch), lengths.cu_seqlens_q);
  if (p.has(ATTUNE_USED_K))
    lengths.used_k = used_of(p, draw(random, p.batch, p.seq_k, p.seq_k * p.batch), lengths.cu_seqlens_k);
  return lengths;
}

}  // namespace

Lengths checked_lengths(const Problem& problem, Random& random) { return drawn(problem, random, draw_awkward, false); }

Lengths timed_lengths(const Problem& problem) {
  Random random(timed_seed);
  Lengths lengths = drawn(problem, random, draw_served, true);
  if (mask_pads(problem)) {
    const int64_t entries = problem.mask.batch == 0 ? std::min<int64_t>(problem.batch, 1) : problem.batch;
    for (const int64_t length : draw_served(random, entries, problem.seq_k, problem.seq_k * entries))
      lengths.padding.push_back(static_cast<int32_t>(length));
  }
  return lengths;
}

bool mask_pads(const Problem& p) {
  return p.has(ATTUNE_MASK) && p.mask.head == 0 && p.mask.query == 0 && p.mask.key != 0;
}

bool padding_shows(const Problem& p, int64_t length, int64_t key) {
  return p.causal == Causal::none ? key < length : key >= p.seq_k - length;
}

nlohmann::json to_json(const Lengths& lengths) {
  nlohmann::json object;
  const auto add = [&](const char* name, const std::vector<int32_t>& values) {
    if (!values.empty()) object[name] = values;
  };
  add("cu_seqlens_q", lengths.cu_seqlens_q);
  add("cu_seqlens_k", lengths.cu_seqlens_k);
  add("used_q", lengths.used_q);
  add("used_k", lengths.used_k);
  add("padding", lengths.padding);
  return object;
}

}  // namespace attune::lab
