// The CPU kernels that selection chooses from: one per instruction-set level, the same interface to each.
#include "cpu/level_kernel.hpp"

namespace attune::cpu {
namespace {

struct Portable final : LevelKernel {
  Portable() : LevelKernel(portable_level, 1) {}
};
const Registration<Portable> portable_registration;

#if defined(__x86_64__)
struct Avx2 final : LevelKernel {
  Avx2() : LevelKernel(avx2_level, 3) {}
};
const Registration<Avx2> avx2_registration;

struct Avx512 final : LevelKernel {
  Avx512() : LevelKernel(avx512_level, 3.3) {}
};
const Registration<Avx512> avx512_registration;

struct Avx512Bf16 final : LevelKernel {
  Avx512Bf16() : LevelKernel(avx512bf16_level, 3.5) {}
};
const Registration<Avx512Bf16> avx512bf16_registration;

struct Amx final : LevelKernel {
  Amx() : LevelKernel(amx_level, 12) {}
};
const Registration<Amx> amx_registration;
#endif

}  // namespace
}  // namespace attune::cpu
