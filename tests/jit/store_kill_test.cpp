// Four processes fill one empty cache and are killed at 50 random moments: afterwards every entry that is there loads
// and is right, every kernel can be had, and nothing hangs.
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <thread>

#include "jit/paths.hpp"
#include "jit/store.hpp"
#include "tests/jit/toy.hpp"

namespace attune::jit {
namespace {

constexpr char arch[] = "sm_90a";
constexpr int kernels = 24, writers = 4, kills = 50;

StoreOptions options_in(const std::string& directory) {
  StoreOptions options;
  options.sources = Sources(directory + "/source");
  options.cache_directory = directory + "/cache";
  options.cache_bytes = uint64_t{64} << 20;
  options.find_compiler = find_nvrtc;
  return options;
}

// What a writer does; run in a process of its own by the test below.
TEST(StoreKill, DISABLED_Writer) {
  const std::string directory = environment("ATTUNE_TEST_DIRECTORY");
  ASSERT_FALSE(directory.empty());
  const int first = std::stoi(environment("ATTUNE_TEST_FIRST"));
  Store store(options_in(directory));
  for (int i = 0; i < kernels; ++i) store.get(toy_unit((first + i) % kernels), arch);
}

pid_t start_writer(const std::string& directory, int first) {
  std::vector<std::string> variables = {"ATTUNE_TEST_DIRECTORY=" + directory,
                                        "ATTUNE_TEST_FIRST=" + std::to_string(first)};
  for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);
  std::vector<char*> environment_words;
  for (std::string& variable : variables) environment_words.push_back(variable.data());
  environment_words.push_back(nullptr);
  std::string self = resolved("/proc/self/exe"), filter = "--gtest_filter=StoreKill.DISABLED_Writer",
              disabled = "--gtest_also_run_disabled_tests", brief = "--gtest_brief=1";
  char* words[] = {self.data(), filter.data(), disabled.data(), brief.data(), nullptr};
  pid_t pid = -1;
  return posix_spawn(&pid, self.c_str(), nullptr, nullptr, words, environment_words.data()) == 0 ? pid : -1;
}

TEST(StoreKill, KilledWritersLeaveNoWrongKernel) {
  SKIP_WITHOUT_NVRTC();
  const Scratch scratch;
  write_toy(scratch / "source");
  std::vector<std::string> right(kernels);
  {
    StoreOptions options = options_in(scratch.path);
    options.cache_directory = "";
    Store store(options);
    for (int i = 0; i < kernels; ++i) right[i] = store.get(toy_unit(i), arch)->cubin;
  }

  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  RecordProperty("seed", std::to_string(seed));
  std::vector<pid_t> running;
  int started = 0;
  const auto fill_up = [&] {
    while (running.size() < writers) running.push_back(start_writer(scratch.path, started++ * 7));
  };
  for (int kill_count = 0; kill_count < kills; ++kill_count) {
    fill_up();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 120'000));
    const size_t victim = random() % running.size();
    ASSERT_GT(running[victim], 0);
    kill(running[victim], SIGKILL);
    waitpid(running[victim], nullptr, 0);
    running.erase(running.begin() + static_cast<std::ptrdiff_t>(victim));
    // Start afresh now and then, so that writers keep meeting missing entries.
    if (kill_count % 5 == 4)
      for (const auto& item : std::filesystem::directory_iterator(scratch / "cache"))
        if (random() % 2 == 0) unlink(item.path().c_str());
  }
  fill_up();
  for (const pid_t pid : running) {
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "seed " << seed;
  }

  Store store(options_in(scratch.path));
  for (int i = 0; i < kernels; ++i) {
    const auto built = store.get(toy_unit(i), arch);
    EXPECT_EQ(built->cubin, right[i]) << "kernel " << i << ", seed " << seed;
    EXPECT_EQ(built->origin, Origin::cache) << "the last writers ran to their end";
  }
}

}  // namespace
}  // namespace attune::jit
