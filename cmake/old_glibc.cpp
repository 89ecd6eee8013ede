// What the objects of this machine's libstdc++ ask of its glibc, and older ones lack. Linked by old_glibc.cmake only.
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdint>

extern "C" {

// Since 2.32: whether the process has one thread, so that counting references needs no atomics. 0 is always right.
extern char __libc_single_threaded;
char __libc_single_threaded = 0;

// Since 2.36: random bits, for std::random_device. A call for so few bytes fails only where the kernel has no
// getrandom, which is older than any system that has this glibc.
std::uint32_t arc4random() noexcept;
std::uint32_t arc4random() noexcept {
  std::uint32_t bits = 0;
  while (getentropy(&bits, sizeof bits) != 0) {
  }
  return bits;
}

// Since 2.30. The lab asks for it.
pid_t gettid() noexcept;
pid_t gettid() noexcept { return static_cast<pid_t>(syscall(SYS_gettid)); }

}  // extern "C"
