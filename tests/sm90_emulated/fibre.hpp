// Fibres: functions with a stack of their own that hand the processor over to one another. The emulator's threads are
// such, and switching is nearly all that its synchronisation costs.
#pragma once

#include <cstddef>

#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace attune::emulator {

class Fibre {
 public:
  // Makes this the fibre that runs `entry`, which must never return, when it is switched to for the first time.
  void start(char* stack, size_t stack_bytes, void (*entry)());

  // Leaves `from`, where it can be gone back to, for this one.
  void switch_from(Fibre& from);

 private:
#ifdef __x86_64__
  void* stack_pointer_ = nullptr;
#else
  ucontext_t context_{};
#endif
};

}  // namespace attune::emulator
