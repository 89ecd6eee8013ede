#include "lab/check/random_problem.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "lab/stats/random.hpp"

namespace attune::lab {
namespace {

using stats::Random;

int64_t pick(Random& random, std::initializer_list<int64_t> values) {
  return *(values.begin() + static_cast<ptrdiff_t>(random.below(values.size())));
}

int64_t between(Random& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random.below(static_cast<uint64_t>(high - low + 1)));
}

bool chance(Random& random, uint64_t one_in) { return random.below(one_in) == 0; }

// Mostly near a tile edge, sometimes anywhere, rarely 0 or 1.
int64_t length(Random& random) {
  switch (random.below(8)) {
    case 0:
      return between(random, 0, 3);
    case 1:
    case 2:
      return std::max<int64_t>(pick(random, {16, 32, 64, 128, 256}) + between(random, -2, 2), 0);
    case 3:
      return between(random, 257, 520);
    default:
      return between(random, 1, 200);
  }
}

int64_t head_dim(Random& random) {
  if (chance(random, 4)) return between(random, 1, 96);
  return pick(random, {8, 16, 32, 40, 64, 64, 80, 96, 128, 128, 192, 256});
}

std::string score_shape(Random& random) {
  std::string shape = "bhqk";
  for (char& letter : shape)
    if (chance(random, 3)) letter = '1';
  return shape;
}

std::string random_problem(Random& random, bool backward) {
  const int64_t batch = pick(random, {1, 1, 1, 2, 3, 4});
  const int64_t heads_kv = pick(random, {1, 1, 2, 3});
  const int64_t heads = heads_kv * pick(random, {1, 1, 2, 3, 4});
  // Few rows and many keys, now and then: their keys are split among threads.
  const bool split = chance(random, 16);
  const int64_t queries = split ? between(random, 1, 3) : length(random);
  const int64_t keys = split ? between(random, 1000, 3000) : chance(random, 2) ? queries : length(random);
  const int64_t dim = head_dim(random);
  std::string text =
      fmt::format("{} b{} h{}/{} q{} k{} d{}", backward ? "bwd" : "fwd", batch, heads, heads_kv, queries, keys, dim);
  if (chance(random, 5)) text += fmt::format("/{}", head_dim(random));
  text += random.below(5) < 2 ? " f16" : random.below(3) < 2 ? " bf16" : " f32";
  if (chance(random, 2)) text += chance(random, 3) ? " causal-tl" : " causal-br";
  if (chance(random, 4)) text += fmt::format(" w{},{}", between(random, -1, 70), between(random, -1, 70));
  if (chance(random, 6)) text += fmt::format(" cap{}", pick(random, {1, 5, 30, 50}));
  // Operands that a word of their own asks for. One that joins every split of the keys is asked for more often there,
  // and its gradient with it.
  for (const OperandRow& row : operand_rows()) {
    if (!forward_operation.operands.has(row.operand) || row.word.empty() || row.word_is_off) continue;
    const bool of_heads = row.form == Form::heads;
    if (!chance(random, of_heads ? (split ? 2 : 4) : 6)) continue;
    text += fmt::format(" {}", row.word);
    if (backward && of_heads) text += fmt::format(" d{}", row.word);
  }
  if (chance(random, 5))
    text += fmt::format(" bias={}{}{}", score_shape(random), chance(random, 2) ? ":f32" : "",
                        backward && !chance(random, 4) ? " dbias" : "");
  if (backward && chance(random, 3)) text += " dlse";
  if (chance(random, 5)) text += fmt::format(" mask={}", score_shape(random));
  if (chance(random, 5)) text += " var";
  if (!backward && chance(random, 12)) text += " nolse";
  if (chance(random, 8)) text += fmt::format(" scale{}", fmt::format("{}", pick(random, {0, 1, -1, 2}) * 0.125));
  if (chance(random, 3)) text += " bhsd";
  return text;
}

}  // namespace

namespace {

Case random_case(uint64_t seed, double flops, bool backward) {
  Random random(derive_seed(seed, backward ? 0x62776463 : 0x63617365));
  Case c;
  do {
    c.problem = to_string(parse_problem(random_problem(random, backward)));
  } while (useful_flops(parse_problem(c.problem)) > flops);
  c.input = chance(random, 2) ? InputKind::normal : all_input_kinds[random.below(all_input_kinds.size())];
  c.storage = all_storages[random.below(all_storages.size())];
  c.seed = seed;
  return c;
}

}  // namespace

Case random_case(uint64_t seed, double flops) { return random_case(seed, flops, false); }
Case random_backward_case(uint64_t seed, double flops) { return random_case(seed, flops, true); }

}  // namespace attune::lab
