#include "lab/measure/quiet_cpus.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>

#include "core/error.hpp"
#include "cpu/amx_absence.hpp"
#include "cpu/isa.hpp"
#include "lab/measure/contender.hpp"
#include "lab/measure/probes/amx.hpp"

namespace attune::lab {
namespace {

// What is timed takes about 0.2 ms on a quick CPU. Half as much goes before it: an idle CPU needs that long to reach
// its clock.
constexpr int64_t amx_rounds = 1 << 13, fma_rounds = 1 << 16;

// In the timed part: whoever else waits for the CPU gets it, and shows in the time. One is not enough, since a process
// that has just given up the CPU to the probe is not at once the next.
constexpr int yields = 3;

// Threads of OpenMP runtimes spin for milliseconds after their work, and make the CPUs of the last round look busy.
constexpr double longest_wait_seconds = 0.03;
constexpr auto wait_step = std::chrono::microseconds(500);

// As many CPUs as Linux can be built for; a cpu_set_t holds 1024.
struct Mask {
  std::array<cpu_set_t, 8> sets{};

  bool has(int cpu) const { return CPU_ISSET_S(static_cast<size_t>(cpu), sizeof sets, sets.data()); }
  void add(int cpu) { CPU_SET_S(static_cast<size_t>(cpu), sizeof sets, sets.data()); }
};
constexpr int most_cpus = 8 * CPU_SETSIZE;

// 0 is the calling thread, in all that the system is asked. Whether the thread is there.
bool read_mask(pid_t thread, Mask& mask) {
  if (sched_getaffinity(thread, sizeof mask.sets, mask.sets.data()) == 0) return true;
  if (errno == ESRCH) return false;
  fail(ATTUNE_UNSUPPORTED, "which CPUs a thread may use cannot be asked: {}", std::strerror(errno));
}

int write_mask(pid_t thread, const Mask& mask) {
  return sched_setaffinity(thread, sizeof mask.sets, mask.sets.data()) == 0 ? 0 : errno;
}

Mask own_mask() {
  Mask mask;
  read_mask(0, mask);
  return mask;
}

// The first CPU of its core; its own number where the system does not tell.
int core_of(int cpu) {
  std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
  int first = cpu;
  return file >> first ? first : cpu;
}

std::vector<pid_t> threads_of_process() {
  std::vector<pid_t> threads;
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc/self/task", error), end; !error && at != end; at.increment(error))
    threads.push_back(static_cast<pid_t>(std::stol(at->path().filename().string())));
  return threads;
}

bool is_running(pid_t thread) {
  std::ifstream file(fmt::format("/proc/self/task/{}/stat", thread));
  std::string line;
  std::getline(file, line);
  const size_t end_of_name = line.rfind(") ");  // a name may hold anything
  return end_of_name != std::string::npos && line.compare(end_of_name + 2, 1, "R") == 0;
}

class ThisProcess final : public ProcessCpus {
 public:
  ThisProcess() : mask_(own_mask()) {
    for (int cpu = 0; cpu < most_cpus; ++cpu)
      if (mask_.has(cpu)) cpus_.push_back({cpu, core_of(cpu)});
    for (const pid_t thread : threads_of_process())
      if (Mask mask; read_mask(thread, mask)) masks_.emplace(thread, mask);
    if (masks_.empty()) fail(ATTUNE_UNSUPPORTED, "/proc/self/task does not list the threads of this process");
  }

  // Threads that were started meanwhile have the CPUs of a round, and get those the process had.
  ~ThisProcess() override {
    for (const pid_t thread : threads_of_process()) {
      const auto found = masks_.find(thread);
      write_mask(thread, found != masks_.end() ? found->second : mask_);
    }
  }

  const std::vector<Cpu>& usable() const override { return cpus_; }

  std::vector<double> probe() override {
    wait_for_others();
    std::vector<double> seconds;
    for (const Cpu& cpu : cpus_) {
      Mask mask;
      mask.add(cpu.number);
      if (const int error = write_mask(0, mask); error != 0) refuse(error);
      work_(rounds_ / 2);
      const double begin = steady_clock().now();
      for (int i = 0; i < yields; ++i) sched_yield();
      work_(rounds_);
      seconds.push_back(steady_clock().now() - begin);
    }
    return seconds;
  }

  // The calling thread has the first one to itself: the system puts two threads that may use two CPUs on one of them,
  // and takes milliseconds to notice.
  void confine(const std::vector<int>& numbers) override {
    Mask first, others;
    first.add(numbers.front());
    for (const int number : numbers)
      if (number != numbers.front() || numbers.size() == 1) others.add(number);
    const pid_t self = gettid();
    for (const pid_t thread : threads_of_process()) {
      const int error = write_mask(thread, thread == self ? first : others);
      // It has ended meanwhile, or is a worker of the kernel's, which nobody moves.
      if (error != 0 && error != ESRCH && error != EINVAL) refuse(error);
    }
  }

 private:
  [[noreturn]] static void refuse(int error) {
    fail(ATTUNE_UNSUPPORTED, "threads cannot be kept on the quickest CPUs: {}", std::strerror(error));
  }

  static void wait_for_others() {
    const pid_t self = gettid();
    const double begin = steady_clock().now();
    const auto computes = [self](pid_t thread) { return thread != self && is_running(thread); };
    while (std::ranges::any_of(threads_of_process(), computes) && steady_clock().now() - begin < longest_wait_seconds)
      std::this_thread::sleep_for(wait_step);
  }

  const Mask mask_;
  std::vector<Cpu> cpus_;
  std::map<pid_t, Mask> masks_;  // of the threads there were
  const bool tiles_ = cpu::amx_absence().empty();
  double (*const work_)(int64_t) = tiles_ ? multiply_amx_tiles_at_once : cpu::best_level().multiply_add;
  const int64_t rounds_ = tiles_ ? amx_rounds : fma_rounds;
};

}  // namespace

std::vector<int> quickest_cpus(const std::vector<Cpu>& cpus, const std::vector<double>& seconds, int count) {
  std::vector<size_t> order(cpus.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, std::less{}, [&](size_t i) { return seconds[i]; });
  std::map<int, int> given;                       // by core
  std::vector<std::pair<int, int>> turn_and_cpu;  // the turn in which its core gives it
  for (const size_t i : order) turn_and_cpu.emplace_back(given[cpus[i].core]++, cpus[i].number);
  std::ranges::stable_sort(turn_and_cpu, std::less{}, &std::pair<int, int>::first);
  std::vector<int> chosen;
  for (size_t i = 0; i < turn_and_cpu.size() && static_cast<int>(i) < count; ++i)
    chosen.push_back(turn_and_cpu[i].second);
  std::ranges::sort(chosen);
  return chosen;
}

std::unique_ptr<ProcessCpus> this_process() { return std::make_unique<ThisProcess>(); }

std::vector<int> confine_to_quickest(ProcessCpus& process, int count) {
  std::vector<int> chosen = quickest_cpus(process.usable(), process.probe(), count);
  process.confine(chosen);
  return chosen;
}

int usable_cpu_count() {
  const Mask mask = own_mask();
  return CPU_COUNT_S(sizeof mask.sets, mask.sets.data());
}

}  // namespace attune::lab
