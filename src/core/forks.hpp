// fork() copies a process with one of its threads. In the child, what the others were about stays half done, and the
// locks that they held stay locked. So what a child may ask for is made in each process: it says so by forks().
#pragma once

#include <atomic>
#include <cstdint>

namespace attune {

extern std::atomic<uint32_t> fork_count;  // in forks.cpp, for forks() alone

// How often this process and those it descends from forked since the library was loaded: another number in each process
// of a line.
inline uint32_t forks() { return fork_count.load(std::memory_order_relaxed); }

// What is made when first asked for, as a static local is; those who come meanwhile wait. A child that was forked
// meanwhile does not wait for a thread that it does not have: it makes its own. Never destroyed.
template <typename T>
class MadeOnce {
 public:
  // An exception from `make` leaves it unmade.
  template <typename Make>
  const T& get(const Make& make) {
    for (;;) {
      if (const T* value = made()) return *value;
      const uint32_t here = forks() + 1;
      uint32_t maker = maker_.load(std::memory_order_acquire);
      if (maker == here)
        maker_.wait(maker);
      else if (maker_.compare_exchange_strong(maker, here))
        return make_it(make);
    }
  }

  // nullptr if it has not been made.
  const T* made() const { return value_.load(std::memory_order_acquire); }

 private:
  template <typename Make>
  const T& make_it(const Make& make) {
    const struct Making {
      std::atomic<uint32_t>& maker;
      ~Making() {
        maker.store(0, std::memory_order_release);
        maker.notify_all();
      }
    } making{maker_};
    if (made() == nullptr) value_.store(new const T(make()), std::memory_order_release);
    return *made();
  }

  std::atomic<const T*> value_{nullptr};
  std::atomic<uint32_t> maker_{0};  // 1 + forks() of the process that makes it, 0 if none does
};

}  // namespace attune
