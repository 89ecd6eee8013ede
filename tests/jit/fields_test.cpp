// One list of fields gives text, comparison and hash.
#include "jit/fields.hpp"

#include <gtest/gtest.h>

namespace attune::jit {
namespace {

enum class Turns { none, products };
constexpr std::string_view initializer_of(Turns turns) {
  return turns == Turns::none ? "Turns::none" : "Turns::products";
}

struct Config {
  int warps = 4;
  bool paired = false;
  Turns turns = Turns::none;
  device::Dtype dtype = device::Dtype::bf16;
};

struct Unlisted {
  int a, b, c;
};

}  // namespace

template <>
inline constexpr auto fields<Config> = list(ATTUNE_FIELD(Config, warps), ATTUNE_FIELD(Config, paired),
                                            ATTUNE_FIELD(Config, turns), ATTUNE_FIELD(Config, dtype));

namespace {

static_assert(HasFields<Config> && !HasFields<Unlisted>);
static_assert(fields_detail::member_count<Config>() == 4);
static_assert(fields_detail::member_count<Unlisted>() == 3);
static_assert(is_same(Config{}, Config{}) && !is_same(Config{}, Config{.turns = Turns::products}));

TEST(Fields, AreWrittenAsInitialisers) {
  EXPECT_EQ(text_of(Config{.warps = 8, .paired = true, .turns = Turns::products}),
            ".warps = 8, .paired = true, .turns = Turns::products, .dtype = Dtype::bf16");
}

TEST(Fields, EveryOneCountsInComparisonAndHash) {
  const Config base;
  for (const Config& other : {Config{.warps = 5}, Config{.paired = true}, Config{.turns = Turns::products},
                              Config{.dtype = device::Dtype::f16}}) {
    EXPECT_FALSE(is_same(base, other)) << text_of(other);
    EXPECT_NE(hash_of(base), hash_of(other)) << text_of(other);
    EXPECT_TRUE(is_same(other, Config(other)));
    EXPECT_EQ(hash_of(other), hash_of(Config(other)));
  }
}

}  // namespace
}  // namespace attune::jit
