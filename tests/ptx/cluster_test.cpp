// Clusters on a GPU: ranks, and exchanges through distributed shared memory by every way there is.
#include <gtest/gtest.h>

#include "tests/ptx/harness.hpp"
#include "tests/ptx/units.hpp"

namespace attune::ptx {
namespace {

using namespace device::test_cluster;
using device::test_cluster::Operation;  // attune has one, too

constexpr size_t grid_ctas = size_t{2} * ctas;

class Cluster : public PtxTest, public testing::WithParamInterface<Operation> {
 protected:
  std::vector<uint32_t> run(Operation operation, size_t words) {
    const Buffer<uint32_t> out(words, 0xee);
    launch(cluster_unit(), {static_cast<uint32_t>(grid_ctas), 1, 1}, Params{operation, out.pointer()});
    finish();
    return out.read();
  }
};

TEST_F(Cluster, RanksCountTheCtas) {
  const std::vector<uint32_t> out = run(Operation::ranks, 2 * grid_ctas);
  for (size_t cta = 0; cta < grid_ctas; ++cta) {
    EXPECT_EQ(out[2 * cta], cta % ctas);
    EXPECT_EQ(out[2 * cta + 1], size_t{ctas});
  }
}

TEST_P(Cluster, EveryCtaReceivesFromEveryOther) {
  std::vector<uint32_t> expected;
  for (size_t cta = 0; cta < grid_ctas; ++cta)
    for (int from = 0; from < ctas; ++from)
      for (int i = 0; i < row_words; ++i) expected.push_back(word(from, static_cast<int>(cta % ctas), i));
  for (int repeat = 0; repeat < 10; ++repeat)
    ASSERT_EQ(difference(run(GetParam(), expected.size()), expected), "") << "repeat " << repeat;
}

std::string name_of(const testing::TestParamInfo<Operation>& info) {
  switch (info.param) {
    case Operation::load:
      return "load";
    case Operation::load_16_bytes:
      return "load_16_bytes";
    case Operation::store:
      return "store";
    case Operation::store_8_bytes:
      return "store_8_bytes";
    case Operation::store_16_bytes:
      return "store_16_bytes";
    case Operation::store_arrive:
      return "store_arrive";
    case Operation::async_store:
      return "async_store";
    case Operation::async_8_bytes:
      return "async_8_bytes";
    case Operation::async_16_bytes:
      return "async_16_bytes";
    case Operation::bulk_copy:
      return "bulk_copy";
    case Operation::ranks:
      break;
  }
  return "ranks";
}

INSTANTIATE_TEST_SUITE_P(By, Cluster,
                         testing::Values(Operation::load, Operation::load_16_bytes, Operation::store,
                                         Operation::store_8_bytes, Operation::store_16_bytes, Operation::store_arrive,
                                         Operation::async_store, Operation::async_8_bytes, Operation::async_16_bytes,
                                         Operation::bulk_copy),
                         name_of);

}  // namespace
}  // namespace attune::ptx
