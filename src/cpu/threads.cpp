// The thread pool. A call of parallel_for takes one of a few slots, opens it and works in it itself; idle workers
// enter open slots and draw indices until they run out. A worker with nothing to do spins for a moment, since the
// next call often follows at once, and then sleeps in the kernel. With OpenMP a call is one parallel region, whose
// members draw indices likewise.
#include "cpu/threads.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "core/error.hpp"
#include "cpu/float_environment.hpp"

namespace attune::cpu {
namespace {

constexpr int max_threads = 4096;
constexpr auto spin_time = std::chrono::microseconds(30);

// Set while this thread runs a body: a nested parallel_for then stays on the thread.
thread_local bool inside_body = false;

class InsideBody {
 public:
  InsideBody() : before_(inside_body) { inside_body = true; }
  ~InsideBody() { inside_body = before_; }

 private:
  bool before_;
};

// Signals are for the host's threads: what is started meanwhile inherits this.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

// A different address for every thread alive.
const void* this_thread() {
  thread_local char here;
  return &here;
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

int usable_cpus() {
  // The set must be as large as the kernel's, which may know more CPUs than a cpu_set_t holds.
  for (int cpus = 1024; cpus <= (1 << 20); cpus *= 4) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(cpus));
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(cpus));
    const int usable = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (usable > 0) return usable;
  }
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

int threads_from_environment() {
  const char* text = std::getenv("ATTUNE_THREADS");
  if (text == nullptr || *text == '\0') return 0;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (*end != '\0' || value < 1 || value > max_threads)
    fail(ATTUNE_INVALID_ARGUMENT, "environment variable ATTUNE_THREADS is '{}'; it must be 1..{}", text, max_threads);
  return static_cast<int>(value);
}

// One parallel_for in progress: the indices not yet drawn, and the first exception.
struct Loop {
  const std::function<void(int64_t)>* body = nullptr;
  int64_t count = 0;
  FloatEnvironment environment;  // of the caller
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error;  // written by the one that sets `failed`, read after all have left

  void begin(int64_t new_count, const std::function<void(int64_t)>& new_body) {
    body = &new_body;
    count = new_count;
    environment = FloatEnvironment::of_this_thread();
    next.store(0, std::memory_order_relaxed);
    failed.store(false, std::memory_order_relaxed);
    error = nullptr;
  }

  // On a thread of the host, which hands out the indices.
  void call_lent(int64_t index) noexcept {
    const InEnvironment as_the_caller(environment);
    if (!failed.load(std::memory_order_relaxed)) call(index);
  }

  void draw() noexcept {
    const InEnvironment as_the_caller(environment);
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) call(i);
  }

  void rethrow() {
    if (error) std::rethrow_exception(std::exchange(error, nullptr));
  }

 private:
  void call(int64_t index) noexcept {
    const InsideBody inside;
    try {
      (*body)(index);
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
      next.store(count, std::memory_order_relaxed);
    }
  }
};

}  // namespace

void wait_while(const std::atomic<uint32_t>& value, uint32_t old) {
  const auto deadline = std::chrono::steady_clock::now() + spin_time;
  do {
    for (int i = 0; i < 32; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      relax();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  value.wait(old, std::memory_order_acquire);
}

class Crew {
 public:
  explicit Crew(int workers) {
    workers_.reserve(static_cast<size_t>(workers));
    const BlockedSignals blocked;
    try {
      for (int i = 0; i < workers; ++i) workers_.emplace_back([this, i] { work(static_cast<size_t>(i)); });
    } catch (const std::system_error&) {
      // The system gives no more threads. Those that started suffice: results do not depend on their number.
    } catch (...) {
      dismiss();
      throw;
    }
  }

  ~Crew() { dismiss(); }

  // False if every slot is taken by other callers, who then keep the workers busy anyway.
  bool run(int64_t count, const std::function<void(int64_t)>& body) {
    for (Slot& slot : slots_) {
      if (slot.taken.exchange(true, std::memory_order_acquire)) continue;
      slot.loop.begin(count, body);
      slot.state.fetch_or(Slot::open, std::memory_order_release);
      call_workers(count - 1);
      slot.loop.draw();
      // Every index is drawn, and by someone inside: when the last one has left, all are done.
      slot.state.fetch_and(~Slot::open, std::memory_order_acq_rel);
      for (uint32_t inside; (inside = slot.state.load(std::memory_order_acquire)) != 0;) wait_while(slot.state, inside);
      const std::exception_ptr error = std::exchange(slot.loop.error, nullptr);
      slot.taken.store(false, std::memory_order_release);
      if (error) std::rethrow_exception(error);
      return true;
    }
    return false;
  }

 private:
  struct alignas(64) Slot {
    static constexpr uint32_t open = 1u << 31;
    std::atomic<bool> taken{false};
    std::atomic<uint32_t> state{0};  // `open`, plus how many workers are inside
    Loop loop;                       // touched by workers only while they are inside an open slot
  };

  void dismiss() {
    stop_.store(true, std::memory_order_relaxed);
    epoch_.fetch_add(1, std::memory_order_release);
    epoch_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  void call_workers(int64_t wanted) {
    epoch_.fetch_add(1, std::memory_order_release);
    if (wanted >= static_cast<int64_t>(workers_.size())) {
      epoch_.notify_all();
    } else {
      for (int64_t i = 0; i < wanted; ++i) epoch_.notify_one();
    }
  }

  void work(size_t index) {
    for (;;) {
      const uint32_t epoch = epoch_.load(std::memory_order_acquire);
      if (stop_.load(std::memory_order_relaxed)) return;
      bool worked = false;
      // Workers begin at different slots, so that callers at the same time share them.
      for (size_t i = 0; i < slots_.size(); ++i) worked |= enter(slots_[(index + i) % slots_.size()]);
      if (!worked) wait_while(epoch_, epoch);
    }
  }

  static bool enter(Slot& slot) {
    if ((slot.state.load(std::memory_order_relaxed) & Slot::open) == 0) return false;
    const bool is_open = (slot.state.fetch_add(1, std::memory_order_acquire) & Slot::open) != 0;
    const bool has_work = is_open && slot.loop.next.load(std::memory_order_relaxed) < slot.loop.count;
    if (has_work) slot.loop.draw();
    if (slot.state.fetch_sub(1, std::memory_order_release) == 1) slot.state.notify_one();
    return has_work;
  }

  std::atomic<uint32_t> epoch_{0};  // grows with every opened slot: what idle workers watch
  std::atomic<bool> stop_{false};
  std::array<Slot, 4> slots_;
  std::vector<std::thread> workers_;
};

Threads::Threads(const attune_options& options)
    : lent_(options.parallel_for),
      lent_user_(options.parallel_for_user),
      gomp_parallel_(options.gomp_parallel),
      omp_get_max_threads_(options.omp_get_max_threads) {
  if ((gomp_parallel_ == nullptr) != (omp_get_max_threads_ == nullptr))
    fail(ATTUNE_INVALID_ARGUMENT,
         "options.{} is NULL and options.{} is not; they must be functions of the same runtime, or both NULL",
         gomp_parallel_ == nullptr ? "gomp_parallel" : "omp_get_max_threads",
         gomp_parallel_ == nullptr ? "omp_get_max_threads" : "gomp_parallel");
  if (gomp_parallel_ != nullptr && lent_ != nullptr)
    fail(ATTUNE_INVALID_ARGUMENT, "options.gomp_parallel is not NULL; it must be when options.parallel_for is given");
  if (options.threads < 0 || options.threads > max_threads)
    fail(ATTUNE_INVALID_ARGUMENT, "options.threads is {}; it must be 0 (one per usable CPU) or 1..{}", options.threads,
         max_threads);
  size_ = options.threads;
  if (size_ == 0) size_ = threads_from_environment();
  if (size_ == 0) size_ = std::min(usable_cpus(), max_threads);
}

Threads::~Threads() {
  delete crew_.load();
  for (const Block& block : blocks_) ::operator delete(block.data, std::align_val_t{64});
}

int Threads::size() const {
  return omp_get_max_threads_ == nullptr ? size_ : std::clamp(omp_get_max_threads_(), 1, max_threads);
}

Crew& Threads::crew() {
  Crew* current = crew_.load(std::memory_order_acquire);
  if (current != nullptr) return *current;
  auto fresh = std::make_unique<Crew>(size() - 1);
  if (crew_.compare_exchange_strong(current, fresh.get(), std::memory_order_acq_rel)) return *fresh.release();
  return *current;
}

void Threads::parallel_for(int64_t count, const std::function<void(int64_t)>& body) {
  if (count <= 0) return;
  if (count > 1 && !inside_body) {
    if (lent_ != nullptr) {
      Loop loop;
      loop.begin(count, body);
      lent_(
          lent_user_, count, [](void* context, int64_t index) { static_cast<Loop*>(context)->call_lent(index); },
          &loop);
      loop.rethrow();
      return;
    }
    if (size() > 1) {
      if (gomp_parallel_ != nullptr) {
        Loop loop;
        loop.begin(count, body);
        // No number of threads: that is as many as the runtime has at hand. A smaller region would make libgomp end
        // the others and start them again for the next full one.
        gomp_parallel_([](void* data) { static_cast<Loop*>(data)->draw(); }, &loop, 0, 0);
        loop.rethrow();
        return;
      }
      if (crew().run(count, body)) return;
    }
  }
  const InsideBody inside;
  for (int64_t i = 0; i < count; ++i) body(i);
}

Threads::Scratch Threads::scratch(size_t bytes) {
  {
    const std::lock_guard lock(blocks_mutex_);
    // The smallest that fits, so that large ones remain for those who need them. Of equals the one this thread had
    // last, otherwise the one used last: caches may still hold it. What another core's cache holds takes long to get.
    const auto better = [](const Block& a, const Block& b) {
      return a.bytes != b.bytes ? a.bytes < b.bytes : a.user == this_thread() || b.user != this_thread();
    };
    auto best = blocks_.end();
    for (auto block = blocks_.begin(); block != blocks_.end(); ++block)
      if (block->bytes >= bytes && (best == blocks_.end() || better(*block, *best))) best = block;
    if (best != blocks_.end()) {
      const Block block = *best;
      blocks_.erase(best);
      return {*this, block};
    }
  }
  return {*this, Block{::operator new(bytes, std::align_val_t{64}), bytes, nullptr}};
}

void Threads::give_back(Block block) noexcept {
  block.user = this_thread();
  // Two for every thread, its own and that of the run it is at, and some for results to be joined. Very large ones are
  // not kept.
  const size_t most_blocks = 2 * static_cast<size_t>(size()) + 4;
  constexpr size_t most_bytes = size_t{64} << 20;
  if (block.bytes <= most_bytes) {
    try {
      const std::lock_guard lock(blocks_mutex_);
      if (blocks_.size() < most_blocks) {
        blocks_.push_back(block);
        return;
      }
      // Larger blocks serve more calls.
      const auto smaller = [](const Block& a, const Block& b) { return a.bytes < b.bytes; };
      const auto smallest = std::min_element(blocks_.begin(), blocks_.end(), smaller);
      if (smallest->bytes < block.bytes) std::swap(*smallest, block);
    } catch (...) {  // no memory for the list
    }
  }
  ::operator delete(block.data, std::align_val_t{64});
}

}  // namespace attune::cpu
