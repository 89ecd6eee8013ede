// Register-level instructions: conversions, exp2, matrix stores, register reallocation, programmatic launch.
#pragma once

#include "kernels/common/mbarrier.cuh"
#include "kernels/common/types.cuh"

#ifdef __CUDACC_RTC__
namespace attune::device {

// Two floats to one 16-bit pair, round to nearest even; `low` lands in the low half.
template <Dtype dtype>
ATTUNE_DEVICE uint32_t pack(float low, float high) {
  uint32_t pair;
  if constexpr (dtype == Dtype::bf16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

ATTUNE_DEVICE float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

ATTUNE_DEVICE float log2_approx(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Within one unit in the last place. A plain division would be a function call, and a call makes wgmma wait.
ATTUNE_DEVICE float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

ATTUNE_DEVICE void store_8_bytes(void* address, uint32_t x, uint32_t y) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(address), "r"(x), "r"(y) : "memory");
}
ATTUNE_DEVICE void store_16_bytes(void* address, const uint32_t (&x)[4]) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
               : "memory");
}

// Four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
ATTUNE_DEVICE void stmatrix_x4(void* row, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)), "r"(a),
               "r"(b), "r"(c), "r"(d)
               : "memory");
}

// Of a thread's two elements of a matrix, the first goes to the row whose index is the column it has without _trans.
ATTUNE_DEVICE void stmatrix_x4_trans(void* row, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

ATTUNE_DEVICE void ldmatrix_x4(uint32_t (&x)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(shared_address(row))
               : "memory");
}

// Each matrix transposed: V, stored by keys, as B of a product over keys.
ATTUNE_DEVICE void ldmatrix_x4_trans(uint32_t (&x)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(shared_address(row))
               : "memory");
}

// d(16 x 8) += a(16 x 16) b(16 x 8) by one warp; registers as in wgmma's fragments.
template <Dtype dtype>
ATTUNE_DEVICE void mma_16x8x16(float* d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (dtype == Dtype::bf16)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// All warps of a warpgroup; the new total over the CTA must fit the register file. With bounded waits registers stay
// where they are: the assertion of a wait that does not end needs more of them than a producer keeps.
template <int count>
ATTUNE_DEVICE void give_registers() {
#ifndef ATTUNE_BOUNDED_WAITS
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
#endif
}
template <int count>
ATTUNE_DEVICE void take_registers() {
#ifndef ATTUNE_BOUNDED_WAITS
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
#endif
}

// Programmatic dependent launch: wait for the kernel before us in the stream; let the one after us start.
ATTUNE_DEVICE void grid_dependency_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
ATTUNE_DEVICE void grid_dependency_launch() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

}  // namespace attune::device
#endif
