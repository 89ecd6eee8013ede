#include "tests/sm90_emulated/fibre.hpp"

#include <cstdint>

#ifdef __x86_64__
// ucontext saves the signal mask as well, by two calls of the system, which takes a hundred times as long.
asm(R"(
.text
.type attune_emulator_switch, @function
attune_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size attune_emulator_switch, . - attune_emulator_switch
)");
extern "C" void attune_emulator_switch(void** save, void* load) asm("attune_emulator_switch");

namespace attune::emulator {

void Fibre::start(char* stack, size_t stack_bytes, void (*entry)()) {
  constexpr int saved_registers = 6;
  auto* top = reinterpret_cast<uintptr_t*>((reinterpret_cast<uintptr_t>(stack) + stack_bytes) & ~uintptr_t{15});
  *--top = 0;  // where entry would return to; its stack is aligned as after a call
  *--top = reinterpret_cast<uintptr_t>(entry);
  for (int i = 0; i < saved_registers; ++i) *--top = 0;
  stack_pointer_ = top;
}

void Fibre::switch_from(Fibre& from) { attune_emulator_switch(&from.stack_pointer_, stack_pointer_); }

}  // namespace attune::emulator
#else
namespace attune::emulator {

void Fibre::start(char* stack, size_t stack_bytes, void (*entry)()) {
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack;
  context_.uc_stack.ss_size = stack_bytes;
  context_.uc_link = nullptr;
  makecontext(&context_, entry, 0);
}

void Fibre::switch_from(Fibre& from) { swapcontext(&from.context_, &context_); }

}  // namespace attune::emulator
#endif
