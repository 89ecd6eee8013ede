// Four processes fill one empty cache and are killed at 50 random moments (15 where time is short): afterwards every
// entry that is there loads and is right, every kernel can be had, and nothing hangs.
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
#include "tests/support/budget.hpp"

namespace attune::jit {
namespace {

constexpr char arch[] = "sm_90a";
constexpr int kernels = 24, writers = 4;

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
  if (posix_spawn(&pid, self.c_str(), nullptr, nullptr, words, environment_words.data()) != 0)
    throw std::runtime_error("posix_spawn failed");
  return pid;
}

int status_of(pid_t pid) {
  int status = 0;
  return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class Writers {
 public:
  explicit Writers(std::string directory) : directory_(std::move(directory)) {}
  Writers(const Writers&) = delete;
  Writers& operator=(const Writers&) = delete;
  ~Writers() {
    while (!running_.empty()) kill_one(0);
  }

  void fill_up() {
    while (running_.size() < writers) running_.push_back(start_writer(directory_, started_++ * 7));
  }
  // False if it had come to its end before.
  bool kill_one(unsigned number) {
    const auto victim = running_.begin() + number % running_.size();
    int status = 0;
    kill(*victim, SIGKILL);
    waitpid(*victim, &status, 0);
    running_.erase(victim);
    return WIFSIGNALED(status);
  }
  bool all_end_well() {
    bool well = true;
    for (const pid_t pid : running_) well = status_of(pid) == 0 && well;
    running_.clear();
    return well;
  }

 private:
  std::string directory_;
  std::vector<pid_t> running_;
  int started_ = 0;
};

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

  // Kills are spread over the time a writer takes here, so that they fall into writing as well as into starting.
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  ASSERT_EQ(status_of(start_writer(scratch.path, 0)), 0);
  const auto whole_run = std::min<Clock::duration>(Clock::now() - begin, std::chrono::seconds(2));

  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  RecordProperty("seed", std::to_string(seed));
  Writers writers_now(scratch.path);
  std::filesystem::remove_all(scratch / "cache");
  const int kills = test::small_budget() ? 5 : 50;
  for (int kill_count = 0; kill_count < kills;) {
    writers_now.fill_up();
    std::this_thread::sleep_for(whole_run * (random() % 1000) / 5000);
    kill_count += writers_now.kill_one(random()) ? 1 : 0;
    // Some entries go, so that writers keep meeting missing ones.
    std::error_code none;
    for (const auto& item : std::filesystem::directory_iterator(scratch / "cache", none))
      if (random() % 4 == 0) unlink(item.path().c_str());
  }
  writers_now.fill_up();
  EXPECT_TRUE(writers_now.all_end_well()) << "seed " << seed;

  Store store(options_in(scratch.path));
  for (int i = 0; i < kernels; ++i) {
    const auto built = store.get(toy_unit(i), arch);
    EXPECT_EQ(built->cubin, right[i]) << "kernel " << i << ", seed " << seed;
    EXPECT_EQ(built->origin, Origin::cache) << "the last writers ran to their end";
  }
}

}  // namespace
}  // namespace attune::jit
