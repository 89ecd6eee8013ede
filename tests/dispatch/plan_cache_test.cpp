// Plans that are kept: few, those in use, shared by descriptors that ask for the same, and never taken from a user.
#include <gtest/gtest.h>
#include <malloc.h>

#include <thread>

#include "dispatch/context.hpp"
#include "dispatch/plan_cache.hpp"

#include "tests/support/sanitizers.hpp"

namespace attune {
namespace {

class IdlePlan final : public Plan {
 public:
  using Plan::Plan;
  void run(const Operands&, void*) const override {}
};

Problem problem_of(int64_t keys) {
  Problem problem = parse_problem("fwd b1 h1/1 q1 k1 d8 f32 nolse");
  problem.seq_k = keys;
  return problem;
}

PlanKey key_of(int64_t keys) { return {desc_from(problem_of(keys)), any_alignment}; }

std::shared_ptr<const Plan> plan_of(int64_t keys) {
  return std::make_shared<IdlePlan>(*kernels().front(), problem_of(keys));
}

TEST(PlanCache, FindsWhatItKeeps) {
  PlanCache cache(4);
  EXPECT_EQ(cache.find(key_of(1)), nullptr);
  const auto plan = plan_of(1);
  EXPECT_EQ(cache.keep(key_of(1), plan), plan);
  EXPECT_EQ(cache.find(key_of(1)), plan);
  EXPECT_EQ(cache.keep(key_of(1), plan_of(1)), plan) << "the first one stays";
  EXPECT_EQ(cache.find(key_of(2)), nullptr);
}

TEST(PlanCache, KeepsNoMoreThanItsCapacity) {
  PlanCache cache(4);
  for (int64_t keys = 1; keys <= 1000; ++keys) {
    cache.keep(key_of(keys), plan_of(keys));
    ASSERT_LE(cache.size(), 4);
    ASSERT_NE(cache.find(key_of(keys)), nullptr);
  }
}

TEST(PlanCache, KeepsWhatIsInUse) {
  PlanCache cache(8);
  const auto used = cache.keep(key_of(1), plan_of(1));
  for (int64_t keys = 2; keys <= 1000; ++keys) {
    cache.keep(key_of(keys), plan_of(keys));
    ASSERT_EQ(cache.find(key_of(1)), used) << "after " << keys;
  }
}

TEST(PlanCache, APlanOutlivesItsPlace) {
  PlanCache cache(1);
  const auto held = cache.keep(key_of(1), plan_of(1));
  cache.keep(key_of(2), plan_of(2));
  EXPECT_EQ(cache.find(key_of(1)), nullptr);
  EXPECT_EQ(held->problem.seq_k, 1);
}

TEST(PlanCache, PinnedPlansStayAndTakeNoPlace) {
  PlanCache cache(2);
  for (int64_t keys : {1, 2, 3}) {
    const auto plan = cache.keep(key_of(keys), plan_of(keys));
    cache.pin(key_of(keys), plan);
    cache.pin(key_of(keys), plan);
  }
  cache.pin(key_of(4), plan_of(4));  // was never kept
  for (int64_t keys = 10; keys <= 1000; ++keys) cache.keep(key_of(keys), plan_of(keys));
  for (int64_t keys : {1, 2, 3, 4}) EXPECT_NE(cache.find(key_of(keys)), nullptr) << keys;
  EXPECT_EQ(cache.size(), 4 + 2);
}

TEST(PlanCacheThreads, EachFindsTheRightPlan) {
  PlanCache cache(3);
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 4; ++t)
    threads.emplace_back([&cache, t] {
      for (int64_t i = 0; i < 2000; ++i) {
        const int64_t keys = 1 + (i + t) % 7;
        auto plan = cache.find(key_of(keys));
        if (plan == nullptr) plan = cache.keep(key_of(keys), plan_of(keys));
        if (i % 500 == 0 && t == 0) cache.pin(key_of(7), plan_of(7));
        EXPECT_EQ(plan->problem.seq_k, keys);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(cache.size(), 3 + 1);
}

attune_options one_thread() {
  attune_options options{};
  options.struct_size = sizeof options;
  options.threads = 1;
  return options;
}

TEST(Plans, DescriptorsThatAskForTheSameShareOne) {
  Context context(one_thread());
  const attune_forward_desc plain = desc_from(problem_of(5));
  attune_forward_desc other = plain;
  other.bias = {1, 2, 3, 4};  // there is no bias, mask, window, scale or softcap
  other.mask = {5, 6, 7, 8};
  other.lse = {9, 9, 9};
  other.window_left = 17;
  other.scale = 3;
  other.softcap = 4;
  EXPECT_EQ(context.plan_for(plain), context.plan_for(other));
  other.features |= ATTUNE_SCALE;
  EXPECT_NE(context.plan_for(plain), context.plan_for(other));
}

TEST(Plans, ManyLengthsStayInLittleMemory) {
  if (test::under_sanitizers) GTEST_SKIP() << "the memory of a build with sanitizers says nothing";
  Context context(one_thread());
  const auto plan_lengths = [&](int64_t first, int64_t last) {
    for (int64_t keys = first; keys < last; ++keys) context.plan_for(desc_from(problem_of(keys)));
  };
  plan_lengths(1, static_cast<int64_t>(PlanCache::default_capacity) + 1);
  const size_t full = mallinfo2().uordblks;
  plan_lengths(static_cast<int64_t>(PlanCache::default_capacity) + 1, 100'000);
  const size_t after = mallinfo2().uordblks;
  EXPECT_LT(after, full + (size_t{1} << 20)) << full << " bytes in use when the cache was full";
  EXPECT_LT(full, size_t{16} << 20);
}

}  // namespace
}  // namespace attune
