// Causal attention of 8 heads over 128 tokens in C++: random q, k and v in, o out.
#include <attune/attune.hpp>
#include <iostream>
#include <random>
#include <vector>

static std::vector<float> attention(const std::vector<float>& q, const std::vector<float>& k,
                                    const std::vector<float>& v, int64_t rows, int64_t heads, int64_t dim) {
  std::vector<float> o(q.size());
  attune::Context context;
  context.forward({.q = attune::bshd(q.data(), 1, rows, heads, dim),
                   .k = attune::bshd(k.data(), 1, rows, heads, dim),
                   .v = attune::bshd(v.data(), 1, rows, heads, dim),
                   .o = attune::bshd(o.data(), 1, rows, heads, dim),
                   .causal = attune::Causal::bottom_right});
  return o;
}

int main() try {
  constexpr int64_t rows = 128, heads = 8, dim = 64;
  std::mt19937 random(1);
  const auto numbers = [&random] {
    std::vector<float> values(rows * heads * dim);
    for (float& value : values) value = std::normal_distribution<float>()(random);
    return values;
  };
  const auto q = numbers(), k = numbers(), v = numbers();
  const auto o = attention(q, k, v, rows, heads, dim);
  // The first row sees only the first key, so it repeats the first value.
  std::cout << "v[0] = " << v[0] << ", o[0] = " << o[0] << "\n";
} catch (const attune::Error& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
