// How a thread computes with floating-point numbers: rounding, flushing to zero, and which exceptions trap. A call
// computes as the thread does that made it, on all threads that work for it: otherwise results would depend on who
// computes what, and on when a worker was started.
#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace attune::cpu {

#if defined(__SSE__)

class FloatEnvironment {
 public:
  static FloatEnvironment of_this_thread() { return FloatEnvironment(_mm_getcsr() & ~raised); }
  FloatEnvironment() = default;

  bool operator==(const FloatEnvironment&) const = default;
  void set() const { _mm_setcsr(state_ | (_mm_getcsr() & raised)); }

 private:
  explicit FloatEnvironment(unsigned state) : state_(state) {}

  static constexpr unsigned raised = 0x3f;  // exceptions so far: what was computed, not how
  unsigned state_ = 0x1f80;                 // that of a new process
};

#else

class FloatEnvironment {
 public:
  static FloatEnvironment of_this_thread() {
    FloatEnvironment environment;
    std::fegetenv(&environment.state_);
    return environment;
  }

  // Unknown: to compare would take as long as to set.
  bool operator==(const FloatEnvironment&) const { return false; }
  void set() const { std::fesetenv(&state_); }

 private:
  std::fenv_t state_{};
};

#endif

// Sets an environment on this thread for as long as this lives. Costs little where it is so already.
class InEnvironment {
 public:
  explicit InEnvironment(const FloatEnvironment& environment)
      : before_(FloatEnvironment::of_this_thread()), changes_(!(environment == before_)) {
    if (changes_) environment.set();
  }
  InEnvironment(const InEnvironment&) = delete;
  InEnvironment& operator=(const InEnvironment&) = delete;
  ~InEnvironment() {
    if (changes_) before_.set();
  }

 private:
  const FloatEnvironment before_;
  const bool changes_;
};

}  // namespace attune::cpu
