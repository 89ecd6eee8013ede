// The way to AMX: what the processor announces, what the system saves, what the process may use, and what a product of
// tiles really gives. CPUID leaf 0x1D, the list of tile configurations, is not asked: on some virtual machines it is
// empty, and AMX works.
#include "cpu/amx_absence.hpp"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csetjmp>
#include <csignal>
#include <cstdint>

#include "core/forks.hpp"
#include "cpu/level/level.hpp"

namespace attune::cpu {
namespace {

// And what the level is compiled with besides.
bool processor_has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24, avx512_vbmi = 1u << 1, avx512_bf16 = 1u << 5;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & amx_bf16) == 0 || (d & amx_tile) == 0) return false;
  if ((c & avx512_vbmi) == 0) return false;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & avx512_bf16) != 0;
}

// Only where the processor has XSAVE, as every one with AMX has.
bool system_saves_tiles() {
  uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr uint32_t tile_config_and_data = 3u << 17;
  return (low & tile_config_and_data) == tile_config_and_data;
}

bool process_may_use_tiles() {
  constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

sigjmp_buf before_trying;
struct sigaction former_action;
volatile long trying_thread = 0;

// Another thread's illegal instruction is none of ours: under the former action it comes up again.
void on_illegal_instruction(int) {
  if (syscall(SYS_gettid) == trying_thread) siglongjmp(before_trying, 1);
  sigaction(SIGILL, &former_action, nullptr);
}

enum class Trial { right, wrong, illegal };

Trial try_tiles() {
  struct sigaction guard{};
  guard.sa_handler = on_illegal_instruction;
  trying_thread = syscall(SYS_gettid);
  sigaction(SIGILL, &guard, &former_action);
  volatile Trial trial = Trial::illegal;
  if (sigsetjmp(before_trying, 1) == 0) trial = amx_level.works() ? Trial::right : Trial::wrong;
  sigaction(SIGILL, &former_action, nullptr);
  return trial;
}

std::string find_absence() {
  if (!processor_has_amx()) return "this CPU has no AMX for bf16";
  if (!system_saves_tiles()) return "the operating system does not save AMX tiles";
  if (!process_may_use_tiles()) return "the operating system does not let this process use AMX";
  switch (try_tiles()) {
    case Trial::right:
      return {};
    case Trial::wrong:
      return "the CPU announces AMX, and its products are wrong";
    case Trial::illegal:
      break;
  }
  return "the CPU announces AMX, and its instructions are illegal";
}

}  // namespace

const std::string& amx_absence() {
  static MadeOnce<std::string> absence;
  return absence.get(find_absence);
}

}  // namespace attune::cpu
#else
namespace attune::cpu {

const std::string& amx_absence() {
  static const std::string absence = "AMX is used on x86-64 under Linux only";
  return absence;
}

}  // namespace attune::cpu
#endif
