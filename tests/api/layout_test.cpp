// The layout that programs, ctypes and other languages rely on. If one of these lines fails, a compiled program breaks.
#include <gtest/gtest.h>

#include <cstddef>
#include <iterator>
#include <type_traits>

#include "attune/attune.h"

namespace {

// Fields in order: each begins where the last one ended, and the last one ends with the struct, so there is no padding.
struct Field {
  const char* name;
  size_t offset, size;
};

template <size_t count>
constexpr bool tight(const Field (&fields)[count], size_t total) {
  size_t at = 0;
  for (const Field& field : fields) {
    if (field.offset != at) return false;
    at += field.size;
  }
  return at == total;
}

#define FIELD(type, name) {#name, offsetof(type, name), sizeof(type::name)}

constexpr Field strides[] = {
    FIELD(attune_strides, batch),
    FIELD(attune_strides, row),
    FIELD(attune_strides, head),
};
static_assert(tight(strides, 24) && sizeof(attune_strides) == 24);

constexpr Field score_strides[] = {
    FIELD(attune_score_strides, batch),
    FIELD(attune_score_strides, head),
    FIELD(attune_score_strides, query),
    FIELD(attune_score_strides, key),
};
static_assert(tight(score_strides, 32) && sizeof(attune_score_strides) == 32);

constexpr Field forward_desc[] = {
    FIELD(attune_forward_desc, struct_size), FIELD(attune_forward_desc, features),
    FIELD(attune_forward_desc, device_kind), FIELD(attune_forward_desc, device_index),
    FIELD(attune_forward_desc, dtype),       FIELD(attune_forward_desc, bias_dtype),
    FIELD(attune_forward_desc, causal),      FIELD(attune_forward_desc, reserved),
    FIELD(attune_forward_desc, batch),       FIELD(attune_forward_desc, heads_q),
    FIELD(attune_forward_desc, heads_kv),    FIELD(attune_forward_desc, seq_q),
    FIELD(attune_forward_desc, seq_k),       FIELD(attune_forward_desc, dim_qk),
    FIELD(attune_forward_desc, dim_v),       FIELD(attune_forward_desc, total_q),
    FIELD(attune_forward_desc, total_k),     FIELD(attune_forward_desc, q),
    FIELD(attune_forward_desc, k),           FIELD(attune_forward_desc, v),
    FIELD(attune_forward_desc, o),           FIELD(attune_forward_desc, lse),
    FIELD(attune_forward_desc, bias),        FIELD(attune_forward_desc, mask),
    FIELD(attune_forward_desc, window_left), FIELD(attune_forward_desc, window_right),
    FIELD(attune_forward_desc, scale),       FIELD(attune_forward_desc, softcap),
};
static_assert(tight(forward_desc, 312) && sizeof(attune_forward_desc) == 312);
static_assert(offsetof(attune_forward_desc, batch) == 32);
static_assert(offsetof(attune_forward_desc, dim_qk) == 72);
static_assert(offsetof(attune_forward_desc, q) == 104);
static_assert(offsetof(attune_forward_desc, lse) == 200);
static_assert(offsetof(attune_forward_desc, bias) == 224);
static_assert(offsetof(attune_forward_desc, mask) == 256);
static_assert(offsetof(attune_forward_desc, window_left) == 288);
static_assert(offsetof(attune_forward_desc, scale) == 304);

constexpr Field forward_args[] = {
    FIELD(attune_forward_args, struct_size),
    FIELD(attune_forward_args, reserved),
    FIELD(attune_forward_args, q),
    FIELD(attune_forward_args, k),
    FIELD(attune_forward_args, v),
    FIELD(attune_forward_args, o),
    FIELD(attune_forward_args, lse),
    FIELD(attune_forward_args, sink),
    FIELD(attune_forward_args, bias),
    FIELD(attune_forward_args, mask),
    FIELD(attune_forward_args, cu_seqlens_q),
    FIELD(attune_forward_args, cu_seqlens_k),
    FIELD(attune_forward_args, used_q),
    FIELD(attune_forward_args, used_k),
    FIELD(attune_forward_args, workspace),
    FIELD(attune_forward_args, workspace_bytes),
};
static_assert(tight(forward_args, 120) && sizeof(attune_forward_args) == 120);

constexpr Field backward_desc[] = {
    FIELD(attune_backward_desc, struct_size), FIELD(attune_backward_desc, features),
    FIELD(attune_backward_desc, device_kind), FIELD(attune_backward_desc, device_index),
    FIELD(attune_backward_desc, dtype),       FIELD(attune_backward_desc, bias_dtype),
    FIELD(attune_backward_desc, causal),      FIELD(attune_backward_desc, reserved),
    FIELD(attune_backward_desc, batch),       FIELD(attune_backward_desc, heads_q),
    FIELD(attune_backward_desc, heads_kv),    FIELD(attune_backward_desc, seq_q),
    FIELD(attune_backward_desc, seq_k),       FIELD(attune_backward_desc, dim_qk),
    FIELD(attune_backward_desc, dim_v),       FIELD(attune_backward_desc, total_q),
    FIELD(attune_backward_desc, total_k),     FIELD(attune_backward_desc, q),
    FIELD(attune_backward_desc, k),           FIELD(attune_backward_desc, v),
    FIELD(attune_backward_desc, o),           FIELD(attune_backward_desc, lse),
    FIELD(attune_backward_desc, bias),        FIELD(attune_backward_desc, mask),
    FIELD(attune_backward_desc, window_left), FIELD(attune_backward_desc, window_right),
    FIELD(attune_backward_desc, scale),       FIELD(attune_backward_desc, softcap),
    FIELD(attune_backward_desc, dout),        FIELD(attune_backward_desc, dlse),
    FIELD(attune_backward_desc, dq),          FIELD(attune_backward_desc, dk),
    FIELD(attune_backward_desc, dv),          FIELD(attune_backward_desc, dbias),
};
static_assert(tight(backward_desc, 464) && sizeof(attune_backward_desc) == 464);
static_assert(offsetof(attune_backward_desc, softcap) == offsetof(attune_forward_desc, softcap));
static_assert(offsetof(attune_backward_desc, dout) == 312);
static_assert(offsetof(attune_backward_desc, dbias) == 432);

constexpr Field backward_args[] = {
    FIELD(attune_backward_args, struct_size),
    FIELD(attune_backward_args, reserved),
    FIELD(attune_backward_args, q),
    FIELD(attune_backward_args, k),
    FIELD(attune_backward_args, v),
    FIELD(attune_backward_args, o),
    FIELD(attune_backward_args, lse),
    FIELD(attune_backward_args, sink),
    FIELD(attune_backward_args, bias),
    FIELD(attune_backward_args, mask),
    FIELD(attune_backward_args, cu_seqlens_q),
    FIELD(attune_backward_args, cu_seqlens_k),
    FIELD(attune_backward_args, used_q),
    FIELD(attune_backward_args, used_k),
    FIELD(attune_backward_args, dout),
    FIELD(attune_backward_args, dlse),
    FIELD(attune_backward_args, dq),
    FIELD(attune_backward_args, dk),
    FIELD(attune_backward_args, dv),
    FIELD(attune_backward_args, dsink),
    FIELD(attune_backward_args, dbias),
    FIELD(attune_backward_args, workspace),
    FIELD(attune_backward_args, workspace_bytes),
};
static_assert(tight(backward_args, 176) && sizeof(attune_backward_args) == 176);

constexpr Field merge_desc[] = {
    FIELD(attune_merge_desc, struct_size),  FIELD(attune_merge_desc, reserved),   FIELD(attune_merge_desc, device_kind),
    FIELD(attune_merge_desc, device_index), FIELD(attune_merge_desc, part_dtype), FIELD(attune_merge_desc, dtype),
    FIELD(attune_merge_desc, parts),        FIELD(attune_merge_desc, batch),      FIELD(attune_merge_desc, heads),
    FIELD(attune_merge_desc, rows),         FIELD(attune_merge_desc, dim),        FIELD(attune_merge_desc, part_o),
    FIELD(attune_merge_desc, part_lse),     FIELD(attune_merge_desc, o),          FIELD(attune_merge_desc, lse),
};
static_assert(tight(merge_desc, 160) && sizeof(attune_merge_desc) == 160);

constexpr Field merge_args[] = {
    FIELD(attune_merge_args, struct_size), FIELD(attune_merge_args, reserved), FIELD(attune_merge_args, part_o),
    FIELD(attune_merge_args, part_lse),    FIELD(attune_merge_args, o),        FIELD(attune_merge_args, lse),
};
static_assert(tight(merge_args, 40) && sizeof(attune_merge_args) == 40);

constexpr Field options[] = {
    FIELD(attune_options, struct_size),         FIELD(attune_options, threads), FIELD(attune_options, parallel_for),
    FIELD(attune_options, parallel_for_user),   FIELD(attune_options, kernel),  FIELD(attune_options, gomp_parallel),
    FIELD(attune_options, omp_get_max_threads),
};
static_assert(tight(options, 48) && sizeof(attune_options) == 48);

static_assert(std::is_same_v<attune_status, int32_t> && std::is_same_v<attune_dtype, int32_t> &&
              std::is_same_v<attune_causal, int32_t> && std::is_same_v<attune_device_kind, int32_t> &&
              std::is_same_v<attune_features, uint32_t>);

// Numbers that are compiled into programs.
TEST(Layout, ConstantsKeepTheirValues) {
  EXPECT_EQ(ATTUNE_OK, 0);
  EXPECT_EQ(ATTUNE_INVALID_ARGUMENT, 1);
  EXPECT_EQ(ATTUNE_UNSUPPORTED, 2);
  EXPECT_EQ(ATTUNE_NO_DEVICE, 3);
  EXPECT_EQ(ATTUNE_NOT_BUILT, 4);
  EXPECT_EQ(ATTUNE_NOT_PREPARED, 5);
  EXPECT_EQ(ATTUNE_COMPILE_ERROR, 6);
  EXPECT_EQ(ATTUNE_DEVICE_ERROR, 7);
  EXPECT_EQ(ATTUNE_OUT_OF_MEMORY, 8);
  EXPECT_EQ(ATTUNE_INTERNAL_ERROR, 9);
  EXPECT_EQ(ATTUNE_F16, 0);
  EXPECT_EQ(ATTUNE_BF16, 1);
  EXPECT_EQ(ATTUNE_F32, 2);
  EXPECT_EQ(ATTUNE_CPU, 0);
  EXPECT_EQ(ATTUNE_CUDA, 1);
  EXPECT_EQ(ATTUNE_CAUSAL_NONE, 0);
  EXPECT_EQ(ATTUNE_CAUSAL_TOP_LEFT, 1);
  EXPECT_EQ(ATTUNE_CAUSAL_BOTTOM_RIGHT, 2);
  const uint32_t bits[] = {ATTUNE_SCALE,   ATTUNE_WINDOW,   ATTUNE_SOFTCAP,  ATTUNE_SINK,   ATTUNE_BIAS,
                           ATTUNE_MASK,    ATTUNE_PACKED,   ATTUNE_USED_Q,   ATTUNE_USED_K, ATTUNE_LSE,
                           ATTUNE_OVERLAP, ATTUNE_KV_READY, ATTUNE_F32_HIGH, ATTUNE_DLSE,   ATTUNE_DSINK,
                           ATTUNE_DBIAS,   ATTUNE_ANY_ORDER};
  for (uint32_t i = 0; i < std::size(bits); ++i) EXPECT_EQ(bits[i], 1u << i);
  EXPECT_EQ(ATTUNE_MERGE_MAX_PARTS, 256);
}

// struct_size comes first everywhere: it is what a library of another version reads first.
TEST(Layout, EveryStructBeginsWithItsSize) {
  EXPECT_EQ(offsetof(attune_forward_desc, struct_size), 0u);
  EXPECT_EQ(offsetof(attune_forward_args, struct_size), 0u);
  EXPECT_EQ(offsetof(attune_backward_desc, struct_size), 0u);
  EXPECT_EQ(offsetof(attune_backward_args, struct_size), 0u);
  EXPECT_EQ(offsetof(attune_merge_desc, struct_size), 0u);
  EXPECT_EQ(offsetof(attune_merge_args, struct_size), 0u);
  EXPECT_EQ(offsetof(attune_options, struct_size), 0u);
}

}  // namespace
