// What the rungs of the ladder share: where a head lies in memory, which keys a row sees, and one thin wrapper per
// instruction that CUDA C++ has no word for. Nothing else is included by a rung, and no header of CUDA is needed.
//
// Where this is not compiled for a GPU, tests/ladder/emulator.hpp stands in for the first part.
#pragma once

#ifdef __CUDACC__
#define DEVICE __device__ __forceinline__
#define UNROLL _Pragma("unroll")

template <typename T>
DEVICE T* shared_memory() {
  extern __shared__ __align__(128) unsigned char dynamic_shared_memory[];
  return reinterpret_cast<T*>(dynamic_shared_memory);
}

DEVICE unsigned shared_address(const void* pointer) { return static_cast<unsigned>(__cvta_generic_to_shared(pointer)); }

// 16 bytes, between addresses that are multiples of 16.
DEVICE void copy_16(void* to, const void* from) { *static_cast<uint4*>(to) = *static_cast<const uint4*>(from); }
DEVICE void zero_16(void* to) { *static_cast<uint4*>(to) = uint4{0, 0, 0, 0}; }

// The same without a register between, and done no earlier than cp_async_wait says. Zeros where `read` is false.
DEVICE void cp_async_16(void* to, const void* from, bool read) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(read ? 16 : 0)
               : "memory");
}
DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until at most `pending` groups of this thread are unfinished. Other threads see the data after a barrier.
template <int pending>
DEVICE void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// Barriers 1 to 15, for `threads` threads in all: those that wait and those that only say that they came by.
DEVICE void barrier_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
DEVICE void barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

template <typename T>
constexpr bool is_half = false;
template <>
constexpr bool is_half<__half> = true;

// Two elements in one register, the first one in the low half.
template <typename T>
DEVICE unsigned pack2(float low, float high) {
  unsigned both;
  if constexpr (is_half<T>)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

// Four 8 x 8 matrices of 16-bit elements; lane i names the i-th of their 32 rows of 16 bytes.
DEVICE void ldmatrix(unsigned (&x)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(shared_address(row))
               : "memory");
}
DEVICE void ldmatrix_transposed(unsigned (&x)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(shared_address(row))
               : "memory");
}

// c += a b, of 16 x 16 by 16 x 8.
template <typename T>
DEVICE void mma_16x8x16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  if constexpr (is_half<T>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// WMMA of 16 x 16 x 16, on matrices in shared memory whose rows, or columns, are `step` elements apart. Which lane has
// which element is known to nobody. float16 takes eight registers of an operand, bfloat16 four.
template <typename T>
struct WmmaA {
  unsigned x[is_half<T> ? 8 : 4];
};
template <typename T, bool by_rows>
struct WmmaB {
  unsigned x[is_half<T> ? 8 : 4];
};
struct WmmaC {
  float x[8];
};

#define LADDER_WMMA_LOAD(WHICH, LAYOUT)                                                                              \
  if constexpr (is_half<T>)                                                                                          \
    asm volatile("wmma.load." WHICH ".sync.aligned." LAYOUT                                                          \
                 ".m16n16k16.shared.f16 {%0,%1,%2,%3,%4,%5,%6,%7}, [%8], %9;"                                        \
                 : "=r"(m.x[0]), "=r"(m.x[1]), "=r"(m.x[2]), "=r"(m.x[3]), "=r"(m.x[4]), "=r"(m.x[5]), "=r"(m.x[6]), \
                   "=r"(m.x[7])                                                                                      \
                 : "r"(shared_address(from)), "r"(step)                                                              \
                 : "memory");                                                                                        \
  else                                                                                                               \
    asm volatile("wmma.load." WHICH ".sync.aligned." LAYOUT ".m16n16k16.shared.bf16 {%0,%1,%2,%3}, [%4], %5;"        \
                 : "=r"(m.x[0]), "=r"(m.x[1]), "=r"(m.x[2]), "=r"(m.x[3])                                            \
                 : "r"(shared_address(from)), "r"(step)                                                              \
                 : "memory")

template <typename T>
DEVICE void wmma_load(WmmaA<T>& m, const T* from, int step) {
  LADDER_WMMA_LOAD("a", "row");
}
template <typename T>
DEVICE void wmma_load(WmmaB<T, true>& m, const T* from, int step) {
  LADDER_WMMA_LOAD("b", "row");
}
template <typename T>
DEVICE void wmma_load(WmmaB<T, false>& m, const T* from, int step) {
  LADDER_WMMA_LOAD("b", "col");
}
#undef LADDER_WMMA_LOAD

DEVICE void wmma_load(WmmaC& m, const float* from, int step) {
  asm volatile("wmma.load.c.sync.aligned.row.m16n16k16.shared.f32 {%0,%1,%2,%3,%4,%5,%6,%7}, [%8], %9;"
               : "=f"(m.x[0]), "=f"(m.x[1]), "=f"(m.x[2]), "=f"(m.x[3]), "=f"(m.x[4]), "=f"(m.x[5]), "=f"(m.x[6]),
                 "=f"(m.x[7])
               : "r"(shared_address(from)), "r"(step)
               : "memory");
}
DEVICE void wmma_store(float* to, const WmmaC& m, int step) {
  asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%0], {%1,%2,%3,%4,%5,%6,%7,%8}, %9;" ::"r"(
                   shared_address(to)),
               "f"(m.x[0]), "f"(m.x[1]), "f"(m.x[2]), "f"(m.x[3]), "f"(m.x[4]), "f"(m.x[5]), "f"(m.x[6]), "f"(m.x[7]),
               "r"(step)
               : "memory");
}

#define LADDER_WMMA_RESULT \
  "+f"(c.x[0]), "+f"(c.x[1]), "+f"(c.x[2]), "+f"(c.x[3]), "+f"(c.x[4]), "+f"(c.x[5]), "+f"(c.x[6]), "+f"(c.x[7])
#define LADDER_WMMA_FOUR(m) "r"(m.x[0]), "r"(m.x[1]), "r"(m.x[2]), "r"(m.x[3])
#define LADDER_WMMA_EIGHT(m) LADDER_WMMA_FOUR(m), "r"(m.x[4]), "r"(m.x[5]), "r"(m.x[6]), "r"(m.x[7])
#define LADDER_WMMA_MMA(B_LAYOUT)                                                                  \
  if constexpr (is_half<T>)                                                                        \
    asm volatile("wmma.mma.sync.aligned.row." B_LAYOUT                                             \
                 ".m16n16k16.f32.f32 {%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9,%10,%11,%12,%13,%14,%15}, " \
                 "{%16,%17,%18,%19,%20,%21,%22,%23}, {%0,%1,%2,%3,%4,%5,%6,%7};"                   \
                 : LADDER_WMMA_RESULT                                                              \
                 : LADDER_WMMA_EIGHT(a), LADDER_WMMA_EIGHT(b));                                    \
  else                                                                                             \
    asm volatile("wmma.mma.sync.aligned.row." B_LAYOUT                                             \
                 ".m16n16k16.f32.bf16.bf16.f32 {%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9,%10,%11}, "       \
                 "{%12,%13,%14,%15}, {%0,%1,%2,%3,%4,%5,%6,%7};"                                   \
                 : LADDER_WMMA_RESULT                                                              \
                 : LADDER_WMMA_FOUR(a), LADDER_WMMA_FOUR(b))

// c += a b
template <typename T, bool by_rows>
DEVICE void wmma_mma(WmmaC& c, const WmmaA<T>& a, const WmmaB<T, by_rows>& b) {
  if constexpr (by_rows) {
    LADDER_WMMA_MMA("row");
  } else {
    LADDER_WMMA_MMA("col");
  }
}
#undef LADDER_WMMA_MMA
#undef LADDER_WMMA_EIGHT
#undef LADDER_WMMA_FOUR
#undef LADDER_WMMA_RESULT
#endif  // __CUDACC__

// One head of one sequence. Consecutive rows of q and o are q_step elements apart, those of k and v kv_step.
template <typename T>
struct Head {
  const T *q, *k, *v;
  T* o;
  float* lse;
  int q_step, kv_step;
};

// Tensors are dense (batch, row, head, dim), lse is (batch, head, row). h / hkv query heads share a head of keys.
template <typename T>
DEVICE Head<T> head_of(const T* Q, const T* K, const T* V, T* O, float* LSE, int dim, int h, int hkv, int q, int k,
                       int head, int batch) {
  const long long q_at = (static_cast<long long>(batch) * q * h + head) * dim;
  const long long kv_at = (static_cast<long long>(batch) * k * hkv + head / (h / hkv)) * dim;
  return {Q + q_at, K + kv_at, V + kv_at, O + q_at, LSE + (static_cast<long long>(batch) * h + head) * q,
          h * dim,  hkv * dim};
}

// Row `row` of a tensor whose rows are `step` apart; a long sequence has more elements than an int counts.
template <typename T>
DEVICE T* row_of(T* first, int row, int step) {
  return first + static_cast<long long>(row) * step;
}

// A row sees the keys before this one. causal: 0 none, 1 aligned at the top left, 2 at the bottom right.
DEVICE int keys_seen(int row, int q, int k, int causal) {
  if (causal == 0) return k;
  return max(0, min(k, row + 1 + (causal == 2 ? k - q : 0)));
}

// A maximum that can be subtracted: of no key at all it is minus infinity.
DEVICE float finite(float largest) { return largest == -INFINITY ? 0.f : largest; }

template <int lanes = 32>
DEVICE float warp_max(float x) {
  UNROLL
  for (int apart = lanes / 2; apart > 0; apart /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, apart));
  return x;
}
template <int lanes = 32>
DEVICE float warp_sum(float x) {
  UNROLL
  for (int apart = lanes / 2; apart > 0; apart /= 2) x += __shfl_xor_sync(0xffffffffu, x, apart);
  return x;
}

// Where the 16 bytes `chunk` of a row of `chunks` lie in a tile whose eight rows that are read together would otherwise
// lie in the same banks. In elements of 16 bits.
template <int chunks, bool on = true>
DEVICE int swizzled(int row, int chunk) {
  constexpr int rows_per_128_bytes = chunks >= 8 ? 1 : 8 / chunks;
  constexpr int mask = chunks >= 8 ? 7 : chunks - 1;
  return (row * chunks + (on ? chunk ^ (row / rows_per_128_bytes & mask) : chunk)) * 8;
}
