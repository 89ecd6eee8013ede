// Packs that are forged, cut short while they are in use, or no files at all.
#include "jit/pack.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <csignal>

#include "core/error.hpp"
#include "tests/jit/hostile_files.hpp"
#include "tests/jit/toy.hpp"

namespace attune::jit {
namespace {

using testing::UnorderedElementsAre;

const std::string& cubin = made_up_cubin;

class PackFileTest : public testing::Test {
 protected:
  // Where things lie in a pack of one entry.
  static constexpr size_t index_hash = 64, header_hash = 72, index = 80;
  static constexpr size_t offset = index + 16, compressed_bytes = index + 24, cubin_bytes = index + 28,
                          name_offset = index + 40, name_bytes = index + 44, names = index + 48;

  void SetUp() override {
    write_pack(file, "sm_90a", "13.0.88", {{key_of(1), {"one", cubin}}});
    good = contents(file);
  }

  // The good pack with one figure changed and the checksums made anew, as a forger would.
  template <typename T>
  void forge(size_t at, T value) {
    std::string bytes = good;
    put(bytes, at, value);
    put(bytes, index_hash, XXH3_64bits(bytes.data() + index, names + 3 - index));
    put(bytes, header_hash, XXH3_64bits(bytes.data(), header_hash));
    write_text(file, bytes);
  }

  Scratch scratch;
  std::string file = scratch / "attune-sm_90a.pack", good;
};

using PackFileDeathTest = PackFileTest;

TEST_F(PackFileDeathTest, CutShortInPlaceItStillServes) {
  expect_good_end([&] {
    const Pack pack(file);
    ASSERT_EQ(truncate(file.c_str(), 0), 0);
    EXPECT_EQ(pack.load(key_of(1)), cubin);
    EXPECT_THAT(pack.names(), testing::ElementsAre("one"));
  });
}

TEST_F(PackFileTest, ClaimsAreCheckedBeforeTheyAreFollowed) {
  forge(name_bytes, uint32_t{3});
  EXPECT_EQ(Pack(file).load(key_of(1)), cubin) << "forged without a change";
  forge(name_bytes, uint32_t{1} << 31);
  EXPECT_THROW(Pack(file).names(), Error);
  forge(name_offset, uint32_t{1} << 31);
  EXPECT_THROW(Pack(file).names(), Error);
  forge(offset, ~uint64_t{0} - 5);
  EXPECT_THROW(Pack{file}, Error);
  forge(compressed_bytes, ~uint32_t{0});
  EXPECT_THROW(Pack{file}, Error);
  forge(cubin_bytes, ~uint32_t{0});
  EXPECT_THROW(Pack{file}, Error);
  forge(cubin_bytes, uint32_t{64} << 20);
  EXPECT_FALSE(Pack(file).load(key_of(1))) << "the compressed data says another size";

  // As long as its header says, by a hole of 2 TB.
  constexpr size_t file_bytes = 56;
  forge(file_bytes, uint64_t{2} << 40);
  ASSERT_EQ(truncate(file.c_str(), off_t{2} << 40), 0);
  EXPECT_THROW(Pack{file}, Error);
}

TEST_F(PackFileDeathTest, WhatIsNoFileIsNotWaitedFor) {
  unlink(file.c_str());
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  expect_good_end([&] { EXPECT_THROW(Pack{file}, Error); });
}

TEST_F(PackFileTest, MayBeALink) {
  const std::string link = scratch / "link.pack";
  ASSERT_EQ(symlink(file.c_str(), link.c_str()), 0);
  EXPECT_EQ(Pack(link).load(key_of(1)), cubin);
}

TEST_F(PackFileDeathTest, WritingThatFailsLeavesTheOldOne) {
  expect_good_end([&] {
    std::signal(SIGXFSZ, SIG_DFL);
    const rlimit small{100, 100};
    setrlimit(RLIMIT_FSIZE, &small);
    EXPECT_THROW(write_pack(file, "sm_90a", "13.0.88", {{key_of(2), {"two", cubin}}}), Error);
    EXPECT_EQ(contents(file), good);
    EXPECT_THAT(names_in(scratch.path), UnorderedElementsAre("attune-sm_90a.pack"));
  });
}

}  // namespace
}  // namespace attune::jit
