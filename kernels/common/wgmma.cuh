// wgmma: asynchronous matrix products of a warpgroup, D(64 x n, float32) += A(64 x 16) B(16 x n), 16-bit inputs.
//
// A comes from shared memory (ss) or registers (rs), B always from shared memory. Between fence and wait nobody may
// touch the accumulators or the A registers; that is why a product and its registers are always passed as whole arrays,
// by reference, through inlined functions: an index unknown at compile time would move them to local memory.
//
// Register layout, thread t of the warpgroup, warp w = t / 32, g = t % 32 / 4, q = t % 4: accumulator register
// 4j + 2i + c holds row 16w + g + 8i, column 8j + 2q + c. A fragment of 16 columns: a0 = (row g, columns 2q, 2q+1), a1
// = row g + 8, a2 and a3 the same rows, columns + 8. So eight accumulators of S, packed in pairs, are the A fragment of
// the next product.
#pragma once

#include "kernels/common/registers.cuh"
#include "kernels/common/tile_layout.cuh"
#include "kernels/common/types.cuh"

namespace attune::device {

// How a tile of 16-bit rows lies in shared memory: panels of 64 columns, each row of a panel 128 bytes, 16-byte chunks
// XORed with the row modulo 8 (the 128-byte swizzle of the copy engine). A panel starts at a multiple of 1024 bytes.
constexpr int panel_columns = 64;
constexpr int panel_row_bytes = 128;

ATTUNE_SHARED_CODE int panel_bytes(int rows) { return rows * panel_row_bytes; }

// Byte offset of an element inside a tile of `rows` rows.
ATTUNE_SHARED_CODE int swizzled_offset(int row, int column, int rows) {
  const int panel = column / panel_columns;
  const int chunk = column % panel_columns / 8;
  return panel * panel_bytes(rows) + row * panel_row_bytes + ((chunk ^ (row % 8)) * 16) + column % 8 * 2;
}

// The shared-memory operand descriptor, 128-byte swizzle. The low word holds the address and is the only part that
// changes in loops: advancing by b bytes adds b / 16 to it.
ATTUNE_SHARED_CODE uint64_t operand_descriptor(uint32_t address, uint32_t leading_bytes, uint32_t stride_bytes) {
  return uint64_t{(address & 0x3ffffu) >> 4} | uint64_t{leading_bytes >> 4} << 16 | uint64_t{stride_bytes >> 4} << 32 |
         uint64_t{1} << 62;
}

// Rows are the outer dimension of the product (Q, and K as B): 8-row groups 1024 bytes apart.
ATTUNE_SHARED_CODE uint64_t k_major_descriptor(uint32_t address) { return operand_descriptor(address, 16, 1024); }

// Rows are contracted (V as B): panels of 64 columns `panel_bytes(rows)` apart, 8-row groups 1024 bytes apart.
ATTUNE_SHARED_CODE uint64_t mn_major_descriptor(uint32_t address, int rows) {
  return operand_descriptor(address, static_cast<uint32_t>(panel_bytes(rows)), 1024);
}

}  // namespace attune::device

#ifdef __CUDACC_RTC__
namespace attune::device {

// Before the first product after ordinary instructions touched accumulators or A registers.
ATTUNE_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
ATTUNE_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until at most `pending` groups are unfinished; groups finish in order.
template <int pending>
ATTUNE_DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// Keeps the compiler from moving reads and writes of these registers across this point.
template <int count>
ATTUNE_DEVICE void pin(float (&registers)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}

template <int n>
struct Wgmma;  // specialised below for every n in use

#define ATTUNE_REGISTERS_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define ATTUNE_REGISTERS_32 \
  ATTUNE_REGISTERS_16       \
  ", "                      \
  "%8, %9, %10, %11, %12, %13, %14, %15"
#define ATTUNE_REGISTERS_48 \
  ATTUNE_REGISTERS_32       \
  ", "                      \
  "%16, %17, %18, %19, %20, %21, %22, %23"
#define ATTUNE_REGISTERS_64 \
  ATTUNE_REGISTERS_48       \
  ", "                      \
  "%24, %25, %26, %27, %28, %29, %30, %31"
#define ATTUNE_REGISTERS_80 \
  ATTUNE_REGISTERS_64       \
  ", "                      \
  "%32, %33, %34, %35, %36, %37, %38, %39"
#define ATTUNE_REGISTERS_96 \
  ATTUNE_REGISTERS_80       \
  ", "                      \
  "%40, %41, %42, %43, %44, %45, %46, %47"
#define ATTUNE_REGISTERS_112 \
  ATTUNE_REGISTERS_96        \
  ", "                       \
  "%48, %49, %50, %51, %52, %53, %54, %55"
#define ATTUNE_REGISTERS_128 \
  ATTUNE_REGISTERS_112       \
  ", "                       \
  "%56, %57, %58, %59, %60, %61, %62, %63"
#define ATTUNE_REGISTERS_144 \
  ATTUNE_REGISTERS_128       \
  ", "                       \
  "%64, %65, %66, %67, %68, %69, %70, %71"
#define ATTUNE_REGISTERS_160 \
  ATTUNE_REGISTERS_144       \
  ", "                       \
  "%72, %73, %74, %75, %76, %77, %78, %79"
#define ATTUNE_REGISTERS_176 \
  ATTUNE_REGISTERS_160       \
  ", "                       \
  "%80, %81, %82, %83, %84, %85, %86, %87"
#define ATTUNE_REGISTERS_192 \
  ATTUNE_REGISTERS_176       \
  ", "                       \
  "%88, %89, %90, %91, %92, %93, %94, %95"
#define ATTUNE_REGISTERS_208 \
  ATTUNE_REGISTERS_192       \
  ", "                       \
  "%96, %97, %98, %99, %100, %101, %102, %103"
#define ATTUNE_REGISTERS_224 \
  ATTUNE_REGISTERS_208       \
  ", "                       \
  "%104, %105, %106, %107, %108, %109, %110, %111"
#define ATTUNE_REGISTERS_240 \
  ATTUNE_REGISTERS_224       \
  ", "                       \
  "%112, %113, %114, %115, %116, %117, %118, %119"
#define ATTUNE_REGISTERS_256 \
  ATTUNE_REGISTERS_240       \
  ", "                       \
  "%120, %121, %122, %123, %124, %125, %126, %127"
#define ATTUNE_OPERANDS(i)                                                                                    \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define ATTUNE_OPERANDS_16 ATTUNE_OPERANDS(0)
#define ATTUNE_OPERANDS_32 ATTUNE_OPERANDS_16, ATTUNE_OPERANDS(8)
#define ATTUNE_OPERANDS_48 ATTUNE_OPERANDS_32, ATTUNE_OPERANDS(16)
#define ATTUNE_OPERANDS_64 ATTUNE_OPERANDS_48, ATTUNE_OPERANDS(24)
#define ATTUNE_OPERANDS_80 ATTUNE_OPERANDS_64, ATTUNE_OPERANDS(32)
#define ATTUNE_OPERANDS_96 ATTUNE_OPERANDS_80, ATTUNE_OPERANDS(40)
#define ATTUNE_OPERANDS_112 ATTUNE_OPERANDS_96, ATTUNE_OPERANDS(48)
#define ATTUNE_OPERANDS_128 ATTUNE_OPERANDS_112, ATTUNE_OPERANDS(56)
#define ATTUNE_OPERANDS_144 ATTUNE_OPERANDS_128, ATTUNE_OPERANDS(64)
#define ATTUNE_OPERANDS_160 ATTUNE_OPERANDS_144, ATTUNE_OPERANDS(72)
#define ATTUNE_OPERANDS_176 ATTUNE_OPERANDS_160, ATTUNE_OPERANDS(80)
#define ATTUNE_OPERANDS_192 ATTUNE_OPERANDS_176, ATTUNE_OPERANDS(88)
#define ATTUNE_OPERANDS_208 ATTUNE_OPERANDS_192, ATTUNE_OPERANDS(96)
#define ATTUNE_OPERANDS_224 ATTUNE_OPERANDS_208, ATTUNE_OPERANDS(104)
#define ATTUNE_OPERANDS_240 ATTUNE_OPERANDS_224, ATTUNE_OPERANDS(112)
#define ATTUNE_OPERANDS_256 ATTUNE_OPERANDS_240, ATTUNE_OPERANDS(120)

// x0..x6 number the operands that follow the accumulators. `major` is that of B; an A in registers has none.
#define ATTUNE_WGMMA_SS(n, type, x0, x1, x2, x3, x4)                                                     \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " x2                                                    \
               ", 0;\n"                                                                                  \
               "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" ATTUNE_REGISTERS_##n \
               "}, " x0 ", " x1 ", p, 1, 1, " x4 ", " x3 ";\n}"                                          \
               : ATTUNE_OPERANDS_##n                                                                     \
               : "l"(a), "l"(b), "r"(accumulate), "n"(major == Major::mn), "n"(a_major == Major::mn))
#define ATTUNE_WGMMA_RS(n, type, x0, x1, x2, x3, x4, x5, x6)                                             \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " x5                                                    \
               ", 0;\n"                                                                                  \
               "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" ATTUNE_REGISTERS_##n \
               "}, {" x0 ", " x1 ", " x2 ", " x3 "}, " x4 ", p, 1, 1, " x6 ";\n}"                        \
               : ATTUNE_OPERANDS_##n                                                                     \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(major == Major::mn))

#define ATTUNE_WGMMA(n, x0, x1, x2, x3, x4, x5, x6)                                                       \
  template <>                                                                                             \
  struct Wgmma<n> {                                                                                       \
    template <Dtype dtype, Major major, Major a_major = Major::k>                                         \
    static ATTUNE_DEVICE void ss(float (&d)[n / 2], uint64_t a, uint64_t b, int accumulate) {             \
      if constexpr (dtype == Dtype::bf16)                                                                 \
        ATTUNE_WGMMA_SS(n, "bf16", x0, x1, x2, x3, x4);                                                   \
      else                                                                                                \
        ATTUNE_WGMMA_SS(n, "f16", x0, x1, x2, x3, x4);                                                    \
    }                                                                                                     \
    template <Dtype dtype, Major major>                                                                   \
    static ATTUNE_DEVICE void rs(float (&d)[n / 2], const uint32_t (&a)[4], uint64_t b, int accumulate) { \
      if constexpr (dtype == Dtype::bf16)                                                                 \
        ATTUNE_WGMMA_RS(n, "bf16", x0, x1, x2, x3, x4, x5, x6);                                           \
      else                                                                                                \
        ATTUNE_WGMMA_RS(n, "f16", x0, x1, x2, x3, x4, x5, x6);                                            \
    }                                                                                                     \
  };

ATTUNE_WGMMA(32, "%16", "%17", "%18", "%19", "%20", "%21", "%22")
ATTUNE_WGMMA(48, "%24", "%25", "%26", "%27", "%28", "%29", "%30")
ATTUNE_WGMMA(64, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
ATTUNE_WGMMA(80, "%40", "%41", "%42", "%43", "%44", "%45", "%46")
ATTUNE_WGMMA(96, "%48", "%49", "%50", "%51", "%52", "%53", "%54")
ATTUNE_WGMMA(112, "%56", "%57", "%58", "%59", "%60", "%61", "%62")
ATTUNE_WGMMA(128, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
ATTUNE_WGMMA(144, "%72", "%73", "%74", "%75", "%76", "%77", "%78")
ATTUNE_WGMMA(160, "%80", "%81", "%82", "%83", "%84", "%85", "%86")
ATTUNE_WGMMA(176, "%88", "%89", "%90", "%91", "%92", "%93", "%94")
ATTUNE_WGMMA(192, "%96", "%97", "%98", "%99", "%100", "%101", "%102")
ATTUNE_WGMMA(256, "%128", "%129", "%130", "%131", "%132", "%133", "%134")

#undef ATTUNE_WGMMA
#undef ATTUNE_WGMMA_SS
#undef ATTUNE_WGMMA_RS

}  // namespace attune::device
#endif
