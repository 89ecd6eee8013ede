// The store: look-up order, keys, threads; entries that are damaged, disks that are full, caches that cannot be
// written.
#include "jit/store.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <thread>

#include "core/error.hpp"
#include "jit/embedded.hpp"
#include "tests/jit/toy.hpp"

namespace attune::jit {
namespace {

using testing::HasSubstr;

constexpr char arch[] = "sm_90a";

// NVRTC under another name, counting.
class CountingCompiler final : public Compiler {
 public:
  explicit CountingCompiler(std::string version) : version_(std::move(version)) {}
  const std::string& version() const override { return version_; }
  std::string where() const override { return "test"; }
  Compiled compile(const std::string& text, const std::vector<SourceFile>& headers,
                   const std::string& target) const override {
    ++count;
    Compiled compiled = find_nvrtc(INT_MAX).compile(text, headers, target);
    compiled.report.spill_store_bytes = spill_bytes;
    return compiled;
  }

  mutable std::atomic<int> count = 0;
  int spill_bytes = 0;

 private:
  std::string version_;
};

class StoreTest : public testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_NVRTC();
    options = toy_options(scratch);
    options.find_compiler = [this](int) -> const Compiler& { return compiler; };
  }

  std::string message_of(Store& store, attune_status status, int number = 1) {
    try {
      store.get(toy_unit(number), arch);
    } catch (const Error& error) {
      EXPECT_EQ(error.status, status);
      return error.what();
    }
    return "no error";
  }

  std::vector<std::string> files() const {
    std::vector<std::string> names;
    std::error_code none;
    for (const auto& item : std::filesystem::directory_iterator(options.cache_directory, none))
      names.push_back(item.path());
    return names;
  }

  Scratch scratch;
  CountingCompiler compiler{measured_nvrtc_version};
  StoreOptions options;
};

TEST_F(StoreTest, CompilesOnceThenRemembersThenCaches) {
  Store store(options);
  const auto first = store.get(toy_unit(1), arch);
  EXPECT_EQ(first->origin, Origin::compiled);
  EXPECT_TRUE(first->measured);
  EXPECT_GT(first->compile_seconds, 0);
  EXPECT_EQ(first->info.kernel, entry_name);
  EXPECT_EQ(store.get(toy_unit(1), arch), first);

  Store another(options);
  const auto cached = another.get(toy_unit(1), arch);
  EXPECT_EQ(cached->origin, Origin::cache);
  EXPECT_EQ(cached->cubin, first->cubin);
  EXPECT_EQ(cached->key, first->key);
  EXPECT_EQ(cached->report.registers, first->report.registers);
  EXPECT_EQ(compiler.count, 1);
}

TEST_F(StoreTest, KeyFollowsConstantsArchitectureSourceAndCompilerButNotComments) {
  Store store(options);
  const Key key = store.get(toy_unit(1), arch)->key;
  EXPECT_NE(key, store.get(toy_unit(2), arch)->key);
  EXPECT_NE(key, store.get(toy_unit(1), "sm_80")->key);

  write_text(scratch / "source/kernels/test/toy.cuh", "// A comment.\n" + std::string(toy_text) + "\n\n");
  EXPECT_EQ(key, store.get(toy_unit(1), arch)->key);
  EXPECT_EQ(compiler.count, 3);

  std::string changed = toy_text;
  changed.replace(changed.find("* config.factor"), 1, "+");
  write_text(scratch / "source/kernels/test/toy.cuh", changed);
  EXPECT_NE(key, store.get(toy_unit(1), arch)->key);

  write_toy(scratch / "source");
  const CountingCompiler other("99.1.2");
  options.find_compiler = [&](int) -> const Compiler& { return other; };
  options.cache_directory = scratch / "another";
  Store with_other(options);
  const auto built = with_other.get(toy_unit(1), arch);
  EXPECT_NE(key, built->key);
  EXPECT_FALSE(built->measured);
  EXPECT_EQ(built->compiler_version, "99.1.2");
}

TEST_F(StoreTest, PrefersWhatTheMeasuredCompilerMade) {
  Store(options).get(toy_unit(1), arch);
  const CountingCompiler other("99.1.2");
  options.find_compiler = [&](int) -> const Compiler& { return other; };
  EXPECT_TRUE(Store(options).get(toy_unit(1), arch)->measured);
  EXPECT_EQ(other.count, 0);
  // A driver that is too old for it gets what the other compiler makes.
  EXPECT_FALSE(Store(options).get(toy_unit(1), arch, major_of(measured_nvrtc_version) - 1)->measured);
}

TEST_F(StoreTest, RefusesSpillsOfAnUnmeasuredCompiler) {
  compiler.spill_bytes = 8;
  Store store(options);
  EXPECT_NO_THROW(store.get(toy_unit(1), arch));
  CountingCompiler other("99.1.2");
  other.spill_bytes = 8;
  options.find_compiler = [&](int) -> const Compiler& { return other; };
  options.cache_directory = scratch / "another";
  Store with_other(options);
  const std::string message = message_of(with_other, ATTUNE_COMPILE_ERROR);
  EXPECT_THAT(message, HasSubstr("99.1.2"));
  EXPECT_THAT(message, HasSubstr("spill 8 bytes"));
  EXPECT_THAT(message, HasSubstr(measured_nvrtc_version));
}

TEST_F(StoreTest, SwitchedOffNamesTheVariant) {
  options.compile = false;
  Store store(options);
  const std::string message = message_of(store, ATTUNE_NOT_BUILT);
  EXPECT_THAT(message, HasSubstr(label_of(toy_unit(1))));
  EXPECT_THAT(message, HasSubstr("ATTUNE_JIT=0"));
  EXPECT_EQ(compiler.count, 0);
}

TEST_F(StoreTest, ErrorsAreTriedAgain) {
  bool broken = true;
  options.find_compiler = [&](int) -> const Compiler& {
    if (broken) fail(ATTUNE_COMPILE_ERROR, "no compiler yet");
    return compiler;
  };
  Store store(options);
  EXPECT_THAT(message_of(store, ATTUNE_COMPILE_ERROR), HasSubstr("no compiler yet"));
  broken = false;
  EXPECT_NO_THROW(store.get(toy_unit(1), arch));
}

TEST_F(StoreTest, ManyThreadsMakeEachKernelOnce) {
  Store store(options);
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&store, t] {
      for (int i = 0; i < 8; ++i) EXPECT_EQ(store.get(toy_unit((t + i) % 4), arch)->info.kernel, entry_name);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(compiler.count, 4);
}

TEST_F(StoreTest, DamagedEntriesAreMadeAnew) {
  Store(options).get(toy_unit(1), arch);
  ASSERT_EQ(files().size(), 1u);
  const std::string file = files()[0];
  std::string good;
  {
    std::ifstream in(file, std::ios::binary);
    good.assign(std::istreambuf_iterator<char>(in), {});
  }
  // Every cut and every flipped bit in the header, some in the rest.
  std::vector<std::string> damaged = {"", good + "x"};
  for (size_t length = 1; length < good.size(); length += length < 64 ? 5 : 611)
    damaged.push_back(good.substr(0, length));
  for (size_t bit = 0; bit < good.size() * 8; bit += bit < size_t{64} * 8 ? 3 : 2311) {
    damaged.push_back(good);
    damaged.back()[bit / 8] = static_cast<char>(damaged.back()[bit / 8] ^ (1 << bit % 8));
  }
  // The other way round the key protects: a sound entry under another's name.
  const std::string elsewhere = Cache(options.cache_directory, 1 << 30).file_of(Key{});
  Cache cache(options.cache_directory, uint64_t{1} << 30);
  write_text(elsewhere, good);
  EXPECT_FALSE(cache.load(Key{}));

  const Key key = Store(options).get(toy_unit(1), arch)->key;
  for (const std::string& bytes : damaged) {
    write_text(file, bytes);
    EXPECT_FALSE(cache.load(key)) << bytes.size() << " bytes";
  }
  const int before = compiler.count;
  const auto again = Store(options).get(toy_unit(1), arch);
  EXPECT_EQ(again->origin, Origin::compiled);
  EXPECT_EQ(compiler.count, before + 1);
  EXPECT_EQ(Store(options).get(toy_unit(1), arch)->origin, Origin::cache);
}

TEST_F(StoreTest, FullDiskFailsNoCall) {
  // As on a full disk, writing stops in the middle of a file.
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit small{1000, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  Store store(options);
  std::shared_ptr<const Built> built;
  EXPECT_NO_THROW(built = store.get(toy_unit(1), arch));
  const std::string description = store.describe();
  setrlimit(RLIMIT_FSIZE, &old);
  ASSERT_NE(built, nullptr);
  EXPECT_EQ(built->origin, Origin::compiled);
  EXPECT_TRUE(files().empty()) << files()[0];
  EXPECT_THAT(description, HasSubstr("not writable"));
  EXPECT_EQ(Store(options).get(toy_unit(1), arch)->origin, Origin::compiled);
  EXPECT_EQ(Store(options).get(toy_unit(1), arch)->origin, Origin::cache);
}

TEST_F(StoreTest, FullFileSystemFailsNoCall) {
  const std::string mount = scratch / "small";
  std::filesystem::create_directory(mount);
  if (std::system(("mount -t tmpfs -o size=8k none " + mount + " 2>/dev/null").c_str()) != 0)
    GTEST_SKIP() << "this user may not mount a small file system";
  options.cache_directory = mount + "/cache";
  for (int i = 0; i < 8; ++i) EXPECT_NO_THROW(Store(options).get(toy_unit(i), arch));
  EXPECT_EQ(std::system(("umount " + mount).c_str()), 0);
}

TEST_F(StoreTest, ReadOnlyCacheIsReadAndFailsNoCall) {
  Store(options).get(toy_unit(1), arch);
  // Root may write anywhere, so a file stands where the directory should be: then nobody can.
  const std::string file = files()[0];
  chmod(options.cache_directory.c_str(), 0555);
  EXPECT_EQ(Store(options).get(toy_unit(1), arch)->origin, Origin::cache);
  EXPECT_NO_THROW(Store(options).get(toy_unit(2), arch));
  chmod(options.cache_directory.c_str(), 0755);
  options.cache_directory = file;
  Store store(options);
  EXPECT_NO_THROW(store.get(toy_unit(2), arch));
  EXPECT_THAT(store.describe(), HasSubstr("not used: Not a directory"));
}

TEST_F(StoreTest, CacheThatOthersMayWriteIsNotUsedAndNamed) {
  Store(options).get(toy_unit(1), arch);
  chmod(options.cache_directory.c_str(), 0777);
  Store store(options);
  const auto built = store.get(toy_unit(1), arch);
  EXPECT_EQ(built->origin, Origin::compiled);
  EXPECT_THAT(built->cache_troubles, HasSubstr("not used: its group or others may write it (mode 0777)"));
  EXPECT_THAT(store.describe(), HasSubstr("MB; not used: its group or others may write it"));
  options.compile = false;
  Store without(options);
  EXPECT_THAT(message_of(without, ATTUNE_NOT_BUILT), HasSubstr("not used: its group or others may write it"));
  chmod(options.cache_directory.c_str(), 0700);
  EXPECT_EQ(Store(options).get(toy_unit(1), arch)->origin, Origin::cache);
}

TEST_F(StoreTest, CacheIsBounded) {
  options.cache_bytes = 20'000;
  Store store(options);
  for (int i = 0; i < 12; ++i) store.get(toy_unit(i), arch);
  uint64_t total = 0;
  for (const std::string& file : files()) total += std::filesystem::file_size(file);
  EXPECT_LE(total, options.cache_bytes);
  EXPECT_GT(total, options.cache_bytes / 2);
  // What was used last is still there.
  EXPECT_EQ(Store(options).get(toy_unit(11), arch)->origin, Origin::cache);
}

TEST_F(StoreTest, LeastRecentlyUsedGoesFirstAndAbandonedPartsGo) {
  Store(options).get(toy_unit(1), arch);
  const std::string old = files()[0];
  Store(options).get(toy_unit(2), arch);
  const timespec long_ago[2] = {{1000, 0}, {1000, 0}};
  utimensat(AT_FDCWD, old.c_str(), long_ago, 0);
  EXPECT_EQ(Store(options).get(toy_unit(1), arch)->origin, Origin::cache);  // now it was used
  const std::string abandoned = old + ".0123456789abcdef.part", young = old + ".0123456789abcde0.part";
  write_text(abandoned, "half");
  write_text(young, "half");
  utimensat(AT_FDCWD, abandoned.c_str(), long_ago, 0);
  for (const std::string& file : files())
    if (file != old && file.ends_with(".cubin")) utimensat(AT_FDCWD, file.c_str(), long_ago, 0);
  options.cache_bytes = 2 * std::filesystem::file_size(old) + 100;
  Store(options).get(toy_unit(3), arch);
  EXPECT_TRUE(std::filesystem::exists(old));
  EXPECT_FALSE(std::filesystem::exists(abandoned));
  EXPECT_TRUE(std::filesystem::exists(young));
  EXPECT_EQ(Store(options).get(toy_unit(2), arch)->origin, Origin::compiled);
}

TEST_F(StoreTest, NoCacheDirectoryIsFine) {
  options.cache_directory = "";
  EXPECT_EQ(Store(options).get(toy_unit(1), arch)->origin, Origin::compiled);
  EXPECT_EQ(Store(options).get(toy_unit(1), arch)->origin, Origin::compiled);
}

class PackTest : public StoreTest {
 protected:
  void freeze(const std::string& directory) {
    Store store(options);
    std::map<Key, PackEntry> entries;
    for (int i = 0; i < 5; ++i) {
      const auto built = store.get(toy_unit(i), arch);
      entries[built->key] = {label_of(toy_unit(i)), built->cubin};
    }
    std::filesystem::create_directories(directory);
    file = directory + "/" + pack_file_name(arch);
    write_pack(file, arch, measured_nvrtc_version, entries);
    options.pack_directories = {directory};
    options.cache_directory = scratch / "empty";
    options.compile = false;
  }
  std::string file;
};

TEST_F(PackTest, ServesWithoutACompiler) {
  freeze(scratch / "pack");
  const Pack pack(file);
  EXPECT_EQ(pack.size(), 5u);
  EXPECT_EQ(pack.arch(), arch);
  EXPECT_EQ(pack.compiler_version(), measured_nvrtc_version);
  EXPECT_THAT(pack.names(), testing::Contains(label_of(toy_unit(3))));
  const int before = compiler.count;
  for (int i = 0; i < 5; ++i) {
    Store store(options);
    const auto built = store.get(toy_unit(i), arch);
    EXPECT_EQ(built->origin, Origin::pack);
    EXPECT_TRUE(built->measured);
  }
  EXPECT_EQ(compiler.count, before);
  Store store(options);
  EXPECT_THAT(message_of(store, ATTUNE_NOT_BUILT, 99), HasSubstr(".number = 99"));
  EXPECT_THROW(Store(options).get(toy_unit(0), "sm_80"), Error);
  EXPECT_THROW(Store(options).get(toy_unit(0), arch, major_of(measured_nvrtc_version) - 1), Error);
}

TEST_F(PackTest, DamageIsSeenAndNeverLoaded) {
  freeze(scratch / "pack");
  std::string good;
  {
    std::ifstream in(file, std::ios::binary);
    good.assign(std::istreambuf_iterator<char>(in), {});
  }
  std::map<std::string, std::string> right;
  options.compile = true;
  for (int i = 0; i < 5; ++i) right[std::to_string(i)] = Store(options).get(toy_unit(i), arch)->cubin;
  options.cache_directory = "";
  for (size_t at = 0; at < good.size(); at += 97) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    write_text(file, bytes);
    options.compile = false;
    for (int i = 0; i < 5; ++i) {
      Store store(options);
      try {
        EXPECT_EQ(store.get(toy_unit(i), arch)->cubin, right[std::to_string(i)]) << "byte " << at;
      } catch (const Error& error) {
        EXPECT_EQ(error.status, ATTUNE_NOT_BUILT);
      }
    }
  }
  for (size_t length = 0; length < good.size(); length += 501) {
    write_text(file, good.substr(0, length));
    EXPECT_THROW(Pack{file}, Error) << length;
  }
  // With a compiler, a damaged pack is only slower.
  options.compile = true;
  Store store(options);
  EXPECT_EQ(store.get(toy_unit(1), arch)->origin, Origin::compiled);
  EXPECT_THAT(store.describe(), HasSubstr("pack " + file));
}

}  // namespace
}  // namespace attune::jit
