// The cache among hostile files: what lies at an entry's path, who may write it, what it claims, limits that end a
// process, and what other programs keep beside it.
#include "jit/cache.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <xxhash.h>

#include <csignal>
#include <cstring>

#include "core/error.hpp"
#include "jit/paths.hpp"
#include "tests/jit/hostile_files.hpp"
#include "tests/jit/toy.hpp"

namespace attune::jit {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr uint64_t plenty = uint64_t{1} << 30;
const std::string& cubin = made_up_cubin;

class CacheTest : public testing::Test {
 protected:
  std::optional<std::string> loaded(uint8_t number) {
    const auto entry = cache.load(key_of(number));
    if (!entry) return std::nullopt;
    return entry->cubin;
  }
  void save(uint8_t number, const std::string& what = cubin) { cache.save(key_of(number), what, {}); }
  std::string path(uint8_t number) const { return cache.file_of(key_of(number)); }

  Scratch scratch;
  std::string directory = scratch / "cache";
  Cache cache{directory, plenty};
};

using CacheDeathTest = CacheTest;

TEST_F(CacheDeathTest, WhatIsNoFileIsNotWaitedForAndReplaced) {
  save(1);
  save(2);
  const std::string place = path(1), sound = path(2);
  const auto replaced = [&] {
    EXPECT_FALSE(loaded(1));
    EXPECT_THAT(cache.troubles(), HasSubstr("ignored " + place));
    save(1);
    EXPECT_EQ(loaded(1), cubin);
  };

  unlink(place.c_str());
  ASSERT_EQ(mkfifo(place.c_str(), 0600), 0);
  expect_good_end(replaced);

  unlink(place.c_str());
  const int unbound = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(place.size(), sizeof address.sun_path);
  std::strncpy(address.sun_path, place.c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(bind(unbound, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  close(unbound);
  expect_good_end(replaced);

  // A link to an entry that is sound and its own, so that nothing but the link speaks against it.
  const std::string aside = scratch / "aside.cubin";
  unlink(place.c_str());
  save(1);
  ASSERT_EQ(rename(place.c_str(), aside.c_str()), 0);
  ASSERT_EQ(symlink(aside.c_str(), place.c_str()), 0);
  expect_good_end(replaced);

  unlink(place.c_str());
  ASSERT_EQ(mkdir(place.c_str(), 0700), 0);
  EXPECT_FALSE(loaded(1));
  save(1);
  EXPECT_THAT(cache.troubles(), HasSubstr("not writable: " + place));
  EXPECT_EQ(loaded(2), cubin);
  EXPECT_THAT(names_in(directory),
              UnorderedElementsAre(place.substr(directory.size() + 1), sound.substr(directory.size() + 1)));
}

TEST_F(CacheTest, SizesAreCheckedBeforeMemoryIsTaken) {
  constexpr size_t payload_bytes = 32, payload_hash = 40, header_hash = 72, header_bytes = 80;
  constexpr uint64_t largest = uint64_t{64} << 20;
  save(1);
  const std::string good = contents(path(1));
  ASSERT_EQ(good.size(), header_bytes + cubin.size());
  // A file of holes is as long as its header says, and all of it is zero.
  const auto claim = [&](uint64_t bytes, uint64_t hash) {
    std::string header = good.substr(0, header_bytes);
    put(header, payload_bytes, bytes);
    put(header, payload_hash, hash);
    put(header, header_hash, XXH3_64bits(header.data(), header_hash));
    write_text(path(1), header);
    return truncate(path(1).c_str(), static_cast<off_t>(header_bytes + bytes)) == 0;
  };
  ASSERT_TRUE(claim(uint64_t{2} << 40, 0));
  EXPECT_NO_THROW(EXPECT_FALSE(loaded(1)));
  const std::string zeros(largest + 1, '\0');
  ASSERT_TRUE(claim(largest + 1, XXH3_64bits(zeros.data(), largest + 1)));
  EXPECT_FALSE(loaded(1));
  ASSERT_TRUE(claim(largest, XXH3_64bits(zeros.data(), largest)));
  EXPECT_EQ(loaded(1), zeros.substr(1));
  save(1);
  EXPECT_EQ(loaded(1), cubin);
}

TEST_F(CacheDeathTest, LimitOnFileSizesEndsNoProcess) {
  save(1);
  save(2);
  const auto limited = [&](const char* handled) {
    const rlimit small{1000, 1000};
    setrlimit(RLIMIT_FSIZE, &small);
    struct sigaction action_before{}, action_after{};
    sigset_t mask, pending;
    sigaction(SIGXFSZ, nullptr, &action_before);
    save(1, "another " + cubin);
    save(3);
    sigaction(SIGXFSZ, nullptr, &action_after);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    EXPECT_EQ(action_before.sa_handler, action_after.sa_handler) << handled;
    EXPECT_FALSE(sigismember(&pending, SIGXFSZ)) << handled;
    EXPECT_FALSE(sigismember(&mask, SIGXFSZ)) << handled;
    EXPECT_EQ(loaded(1), cubin) << "what was there is still there";
    EXPECT_FALSE(loaded(3));
    EXPECT_EQ(names_in(directory).size(), 2u) << "nothing is left behind";
    EXPECT_THAT(cache.troubles(), HasSubstr("not writable"));
  };
  expect_good_end([&] {
    std::signal(SIGXFSZ, SIG_DFL);
    limited("by default");
  });
  expect_good_end([&] {
    std::signal(SIGXFSZ, [](int) { _exit(3); });
    limited("by the host");
  });
  expect_good_end([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    limited("not at all");
  });
  // The host's own signal, which it holds back, is not taken away.
  expect_good_end([&] {
    sigset_t own, pending;
    sigemptyset(&own);
    sigaddset(&own, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &own, nullptr);
    raise(SIGXFSZ);
    save(3);
    sigpending(&pending);
    EXPECT_TRUE(sigismember(&pending, SIGXFSZ));
    EXPECT_EQ(loaded(3), cubin);
  });
}

TEST_F(CacheTest, DirectoriesAreMadeForTheUserAlone) {
  Cache deep(scratch / "a/b/c", plenty);
  const mode_t before = umask(0);
  deep.save(key_of(1), cubin, {});
  umask(before);
  EXPECT_TRUE(deep.load(key_of(1)));
  for (const char* made : {"a", "a/b", "a/b/c"}) EXPECT_EQ(mode_of(scratch / made), 0700u) << made;
  EXPECT_EQ(mode_of(deep.file_of(key_of(1))), 0600u);
}

TEST_F(CacheTest, DirectoryThatOthersMayWriteIsNotUsed) {
  save(1);
  for (const mode_t mode : {0770, 0702, 0777}) {
    chmod(directory.c_str(), mode);
    EXPECT_FALSE(loaded(1)) << mode;
    save(2);
    EXPECT_EQ(names_in(directory).size(), 1u) << mode;
    EXPECT_THAT(cache.describe(),
                HasSubstr(fmt::format("not used: its group or others may write it (mode {:04o})", mode)));
  }
  // Found by looking, before anything was loaded or saved.
  EXPECT_THAT(Cache(directory, plenty).describe(), HasSubstr("not used: its group"));

  // The sticky bit leaves to everybody their own files, and those of others are told by their owner.
  chmod(directory.c_str(), 01777);
  EXPECT_EQ(loaded(1), cubin);
  save(1);
  EXPECT_THAT(cache.troubles(), IsEmpty());
  chmod(directory.c_str(), 0755);
  EXPECT_EQ(loaded(1), cubin);
}

TEST_F(CacheTest, EntryThatOthersMayWriteIsIgnoredAndReplaced) {
  for (const mode_t mode : {0660, 0602, 0666}) {
    save(1);
    chmod(path(1).c_str(), mode);
    EXPECT_FALSE(loaded(1)) << mode;
    EXPECT_THAT(cache.troubles(),
                HasSubstr(fmt::format("ignored {}: its group or others may write it (mode {:04o})", path(1), mode)));
  }
  save(1);
  EXPECT_EQ(mode_of(path(1)), 0600u);
  chmod(path(1).c_str(), 0644);
  EXPECT_EQ(loaded(1), cubin);
}

TEST_F(CacheTest, WhatBelongsToOthersIsNotUsed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  constexpr uid_t other = 12345;
  save(1);
  chmod(directory.c_str(), 01777);
  ASSERT_EQ(chown(path(1).c_str(), other, other), 0);
  EXPECT_FALSE(loaded(1));
  EXPECT_THAT(cache.troubles(), HasSubstr("ignored " + path(1) + ": it belongs to user 12345"));
  save(1);
  EXPECT_EQ(loaded(1), cubin);
  chmod(directory.c_str(), 0700);
  ASSERT_EQ(chown(directory.c_str(), other, other), 0);
  EXPECT_FALSE(loaded(1));
  EXPECT_THAT(cache.troubles(), HasSubstr("not used: it belongs to user 12345, not to user 0"));

  // The other way round, root is trusted.
  ASSERT_EQ(chown(directory.c_str(), 0, 0), 0);
  chmod(scratch.path.c_str(), 0755);
  chmod(directory.c_str(), 0755);
  chmod(path(1).c_str(), 0644);
  expect_good_end([&] {
    ASSERT_EQ(setresuid(other, other, other), 0);
    EXPECT_EQ(loaded(1), cubin);
  });
}

TEST_F(CacheTest, DirectoryMayBeALinkAndIsJudgedByWhereItLeads) {
  const std::string real = scratch / "real";
  ASSERT_EQ(mkdir(real.c_str(), 0755), 0);
  ASSERT_EQ(symlink(real.c_str(), directory.c_str()), 0);
  save(1);
  EXPECT_EQ(loaded(1), cubin);
  chmod(real.c_str(), 0777);
  EXPECT_FALSE(loaded(1));
  EXPECT_THAT(cache.troubles(), HasSubstr("not used"));
  unlink(directory.c_str());
  ASSERT_EQ(symlink((scratch / "nowhere").c_str(), directory.c_str()), 0);
  EXPECT_FALSE(loaded(1));
  save(1);
  EXPECT_THAT(cache.troubles(), HasSubstr("not writable"));
}

TEST_F(CacheTest, TrimmingTouchesNothingButItsOwn) {
  cache.save(key_of(1), cubin, {});
  const std::string own = path(1).substr(directory.size() + 1), digits = own.substr(0, 32);
  const std::vector<std::string> foreign = {"kernel.cubin",
                                            "download.part",
                                            digits + "00000000.cubin",
                                            "0123456789ABCDEF0123456789ABCDEF.cubin",
                                            digits.substr(1) + "_.cubin",
                                            "x" + own,
                                            own + ".part",
                                            own + ".1.0.part",
                                            own + ".0123456789abcdeg.part",
                                            own + "x0123456789abcdef.part",
                                            "kernel.cubin.0123456789abcdef.part",
                                            digits + ".part"};
  const timespec long_ago[2] = {{1000, 0}, {1000, 0}};
  for (const std::string& name : foreign) {
    write_text(directory + "/" + name, "another program's");
    utimensat(AT_FDCWD, (directory + "/" + name).c_str(), long_ago, 0);
  }
  const auto as_directory = path(2), as_link = path(3), as_fifo = path(4) + ".0123456789abcdef.part";
  ASSERT_EQ(mkdir(as_directory.c_str(), 0700), 0);
  ASSERT_EQ(symlink("kernel.cubin", as_link.c_str()), 0);
  ASSERT_EQ(mkfifo(as_fifo.c_str(), 0600), 0);
  utimensat(AT_FDCWD, as_fifo.c_str(), long_ago, 0);
  const std::string abandoned = path(5) + ".0123456789abcdef.part";
  write_text(abandoned, "ours");
  utimensat(AT_FDCWD, abandoned.c_str(), long_ago, 0);

  Cache tiny(directory, 1);
  tiny.save(key_of(6), cubin, {});
  EXPECT_FALSE(exists(path(1)));
  EXPECT_FALSE(exists(abandoned));
  EXPECT_TRUE(exists(path(6))) << "what was saved last stays";
  for (const std::string& name : foreign) EXPECT_TRUE(exists(directory + "/" + name)) << name;
  EXPECT_TRUE(exists(as_directory));
  EXPECT_TRUE(exists(as_link));
  EXPECT_TRUE(exists(as_fifo));
}

class CachePlace : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"ATTUNE_CACHE_DIR", "XDG_CACHE_HOME", "HOME", "ATTUNE_PACK_DIR"}) {
      const char* value = getenv(name);
      former.emplace_back(name, value == nullptr ? std::nullopt : std::optional<std::string>(value));
      unsetenv(name);
    }
  }
  void TearDown() override {
    for (const auto& [name, value] : former)
      if (value)
        setenv(name.c_str(), value->c_str(), 1);
      else
        unsetenv(name.c_str());
  }
  std::vector<std::pair<std::string, std::optional<std::string>>> former;
};

TEST_F(CachePlace, FollowsTheEnvironment) {
  EXPECT_EQ(default_cache_directory(), "");
  EXPECT_THAT(Cache("", plenty).describe(), HasSubstr("none, since none of ATTUNE_CACHE_DIR, XDG_CACHE_HOME and HOME"));
  setenv("HOME", "somewhere", 1);
  EXPECT_EQ(default_cache_directory(), "") << "relative to a directory that nobody meant";
  setenv("HOME", "/home/somebody", 1);
  EXPECT_EQ(default_cache_directory(), "/home/somebody/.cache/attune");
  setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(default_cache_directory(), "/home/somebody/.cache/attune");
  setenv("XDG_CACHE_HOME", "/var/cache/somebody", 1);
  EXPECT_EQ(default_cache_directory(), "/var/cache/somebody/attune");
  // Given on purpose, so it means the working directory of now, wherever the process goes afterwards.
  setenv("ATTUNE_CACHE_DIR", "kernels/mine", 1);
  EXPECT_EQ(default_cache_directory(), std::filesystem::current_path().string() + "/kernels/mine");
  setenv("ATTUNE_PACK_DIR", "packs", 1);
  EXPECT_THAT(store_options_from_environment().pack_directories,
              testing::ElementsAre(std::filesystem::current_path().string() + "/packs"));
}

}  // namespace
}  // namespace attune::jit
