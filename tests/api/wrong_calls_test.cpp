// Wrong calls of attune_forward, each with its status and a sentence that names the argument, its value and what is
// allowed; and whatever else, the outputs are left alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "attune/attune.h"
#include "core/problem.hpp"
#include "tests/api/spoil.hpp"
#include "tests/support/forward_call.hpp"

namespace attune {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using D = attune_forward_desc;
using A = attune_forward_args;

constexpr int64_t big = int64_t{1} << 62;

// Every feature is on, so every field is read.
constexpr const char* dense =
    "fwd b2 h8/4 q5 k7 d16/8 f16 causal-br w3,2 cap30 sink bias=bhqk mask=bhqk used-q used-k scale0.5";
constexpr const char* packed = "fwd b2 h8/4 q5 k7 d16/8 bf16 var=9,12";
constexpr const char* packed_in_part = "fwd b2 h8/4 q5 k7 d16/8 bf16 var=9,12 used-q used-k";

struct WrongCall {
  const char* name;
  const char* problem;
  test::Spoil<D, A>::Function spoil;
  const char* argument_and_value;
  const char* allowed;
};

// Lengths that fit `dense` and `packed` but for one.
constexpr int32_t q_begins_late[] = {1, 5, 9}, q_decreases[] = {0, 5, 4}, q_negative[] = {0, -3, 9},
                  q_ends_early[] = {0, 4, 8}, q_ends_late[] = {0, 5, 10}, q_too_long[] = {0, 3, 9};
constexpr int32_t k_begins_early[] = {-1, 6, 12}, k_decreases[] = {0, 7, 6}, k_negative[] = {0, -9, 12},
                  k_ends_early[] = {0, 5, 11}, k_ends_late[] = {0, 7, 13}, k_too_long[] = {0, 4, 12};
constexpr int32_t used_negative[] = {2, -1}, used_too_many[] = {8, 3}, no_rows[] = {6, 0}, no_keys[] = {0, 8};

struct Table : test::Spoil<D, A> {
  static inline const std::vector<WrongCall> calls = {
      {"struct_size_0", dense, set(&D::struct_size, 0), "desc->struct_size is 0", "must be sizeof"},
      {"struct_size_huge", dense, set(&D::struct_size, 1u << 30), "struct_size is 1073741824", "sizeof"},
      {"args_struct_size_4", dense, set(&A::struct_size, 4), "args->struct_size is 4", "must be sizeof"},
      {"reserved", dense, set(&D::reserved, 7), "desc.reserved is 7", "must be 0"},
      {"args_reserved", dense, set(&A::reserved, 9), "args.reserved is 9", "must be 0"},
      {"unknown_feature", dense, [](D& d, A&) { d.features |= 0x2000u; }, "0x2000 are unknown", "0x1fff are allowed"},
      {"unknown_high_feature", dense, [](D& d, A&) { d.features |= 0x80000000u; }, "0x80000000 are unknown", "0x1fff"},
      {"kv_ready_alone", dense, [](D& d, A&) { d.features |= ATTUNE_KV_READY; }, "desc.features is 0x",
       "ATTUNE_KV_READY (0x800) is allowed only together with ATTUNE_OVERLAP (0x400)"},
      {"device_kind_2", dense, set(&D::device_kind, 2), "desc.device_kind is 2", "ATTUNE_CUDA (1)"},
      {"device_kind_negative", dense, set(&D::device_kind, -1), "desc.device_kind is -1", "ATTUNE_CPU (0)"},
      {"device_index_on_cpu", dense, set(&D::device_index, 1), "desc.device_index is 1", "0 on the CPU"},
      {"device_index_negative", dense,
       [](D& d, A&) {
         d.device_kind = ATTUNE_CUDA;
         d.device_index = -1;
       },
       "desc.device_index is -1", "0 or greater"},
      {"dtype_3", dense, set(&D::dtype, 3), "desc.dtype is 3", "ATTUNE_F32 (2)"},
      {"dtype_negative", dense, set(&D::dtype, -1), "desc.dtype is -1", "ATTUNE_F16 (0)"},
      {"bias_dtype_9", dense, set(&D::bias_dtype, 9), "desc.bias_dtype is 9", "ATTUNE_BF16 (1)"},
      {"bias_dtype_other", dense, set(&D::bias_dtype, ATTUNE_BF16), "desc.bias_dtype is bf16",
       "must be f16 (desc.dtype) or f32"},
      {"causal_3", dense, set(&D::causal, 3), "desc.causal is 3", "ATTUNE_CAUSAL_BOTTOM_RIGHT (2)"},
      {"causal_negative", dense, set(&D::causal, -2), "desc.causal is -2", "ATTUNE_CAUSAL_NONE (0)"},
      {"batch_negative", dense, set(&D::batch, -1), "desc.batch is -1", "0.."},
      {"batch_huge", dense, set(&D::batch, big), "desc.batch is 4611686018427387904", "..281474976710656"},
      {"heads_q_negative", dense, set(&D::heads_q, -8), "desc.heads_q is -8", "0.."},
      {"heads_kv_negative", dense, set(&D::heads_kv, -4), "desc.heads_kv is -4", "0.."},
      {"heads_kv_0", dense, set(&D::heads_kv, 0), "desc.heads_kv is 0", "must divide heads_q (8)"},
      {"heads_kv_3", dense, set(&D::heads_kv, 3), "desc.heads_kv is 3", "must divide heads_q (8)"},
      {"heads_kv_more", dense, set(&D::heads_kv, 16), "desc.heads_kv is 16", "must divide heads_q (8)"},
      {"seq_q_negative", dense, set(&D::seq_q, -5), "desc.seq_q is -5", "0.."},
      {"seq_k_negative", dense, set(&D::seq_k, -1), "desc.seq_k is -1", "0.."},
      {"seq_k_huge", dense, set(&D::seq_k, big), "desc.seq_k is 4611686018427387904", "0.."},
      {"dim_qk_0", dense, set(&D::dim_qk, 0), "desc.dim_qk is 0", "1..512"},
      {"dim_qk_513", dense, set(&D::dim_qk, 513), "desc.dim_qk is 513", "1..512"},
      {"dim_v_negative", dense, set(&D::dim_v, -8), "desc.dim_v is -8", "1..512"},
      {"dim_v_1024", dense, set(&D::dim_v, 1024), "desc.dim_v is 1024", "1..512"},
      {"total_q_without_packed", dense, set(&D::total_q, 10), "desc.total_q is 10", "0 without ATTUNE_PACKED"},
      {"total_k_without_packed", dense, set(&D::total_k, 3), "desc.total_k is 3", "0 without ATTUNE_PACKED"},
      {"total_q_negative", packed, set(&D::total_q, -9), "desc.total_q is -9", "0..2147483647"},
      {"total_q_beyond_int32", packed, set(&D::total_q, int64_t{1} << 31), "desc.total_q is 2147483648",
       "0..2147483647"},
      {"total_k_beyond_int32", packed, set(&D::total_k, int64_t{1} << 33), "desc.total_k is 8589934592",
       "0..2147483647"},
      {"too_many_elements", dense,
       [](D& d, A&) {
         d.batch = d.seq_k = int64_t{1} << 40;
         d.k = d.v = d.q = {0, 0, 0};
       },
       "desc.k has an extent of", "fewer than 2^63 elements"},
      {"q_batch_stride_overflow", dense, set(&D::q, &attune_strides::batch, big), "desc.q.batch is 4611686018427387904",
       "below 2^63"},
      {"k_row_stride_overflow", dense, set(&D::k, &attune_strides::row, -big), "desc.k.row is -4611686018427387904",
       "below 2^63"},
      {"v_head_stride_overflow", dense, set(&D::v, &attune_strides::head, std::numeric_limits<int64_t>::min()),
       "desc.v.head is -9223372036854775808", "below 2^63"},
      {"bias_key_stride_overflow", dense, set(&D::bias, &attune_score_strides::key, big),
       "desc.bias.key is 4611686018427387904", "below 2^63"},
      {"mask_query_stride_overflow", dense, set(&D::mask, &attune_score_strides::query, big),
       "desc.mask.query is 4611686018427387904", "below 2^63"},
      {"o_rows_overlap", dense, set(&D::o, &attune_strides::row, 0), "desc.o.row is 0", "at least 8"},
      {"o_heads_overlap", dense, set(&D::o, &attune_strides::head, 7), "desc.o.head is 7", "at least 8"},
      {"o_batches_overlap", dense, set(&D::o, &attune_strides::batch, 64), "is 64", "no two elements"},
      {"lse_rows_overlap", dense, set(&D::lse, &attune_strides::row, 0), "desc.lse.row is 0", "at least 1"},
      {"lse_heads_overlap", dense, set(&D::lse, &attune_strides::head, 4), "desc.lse.head is 4", "at least 5"},
      {"packed_o_rows_overlap", packed, set(&D::o, &attune_strides::row, 8), "is 8", "no two elements"},
      {"scale_nan", dense, set(&D::scale, NAN), "desc.scale is nan", "must be finite"},
      {"scale_infinite", dense, set(&D::scale, INFINITY), "desc.scale is inf", "must be finite"},
      {"softcap_0", dense, set(&D::softcap, 0), "desc.softcap is 0", "greater than 0"},
      {"softcap_negative", dense, set(&D::softcap, -30), "desc.softcap is -30", "greater than 0"},
      {"softcap_nan", dense, set(&D::softcap, NAN), "desc.softcap is nan", "greater than 0"},
      {"softcap_infinite", dense, set(&D::softcap, INFINITY), "desc.softcap is inf", "finite"},
      {"window_left", dense, set(&D::window_left, -2), "desc.window_left is -2", "-1 (unbounded)"},
      {"window_right", dense, set(&D::window_right, -100), "desc.window_right is -100", "-1 (unbounded)"},
      {"q_null", dense, set(&A::q, nullptr), "args.q is NULL", "must point to the queries"},
      {"k_null", dense, set(&A::k, nullptr), "args.k is NULL", "must point to the keys"},
      {"v_null", dense, set(&A::v, nullptr), "args.v is NULL", "must point to the values"},
      {"o_null", dense, set(&A::o, nullptr), "args.o is NULL", "must point to the output"},
      {"lse_null", dense, set(&A::lse, nullptr), "args.lse is NULL", "ATTUNE_LSE"},
      {"sink_null", dense, set(&A::sink, nullptr), "args.sink is NULL", "heads_q floats"},
      {"bias_null", dense, set(&A::bias, nullptr), "args.bias is NULL", "ATTUNE_BIAS"},
      {"mask_null", dense, set(&A::mask, nullptr), "args.mask is NULL", "ATTUNE_MASK"},
      {"used_q_null", dense, set(&A::used_q, nullptr), "args.used_q is NULL", "batch lengths"},
      {"used_k_null", dense, set(&A::used_k, nullptr), "args.used_k is NULL", "batch lengths"},
      {"cu_seqlens_q_null", packed, set(&A::cu_seqlens_q, nullptr), "args.cu_seqlens_q is NULL", "batch + 1 offsets"},
      {"cu_seqlens_k_null", packed, set(&A::cu_seqlens_k, nullptr), "args.cu_seqlens_k is NULL", "batch + 1 offsets"},
      {"q_misaligned", dense, misalign(&A::q), "args.q is 0x", "multiple of 2 bytes"},
      {"k_misaligned", dense, misalign(&A::k), "args.k is 0x", "multiple of 2 bytes"},
      {"v_misaligned", dense, misalign(&A::v), "args.v is 0x", "multiple of 2 bytes"},
      {"o_misaligned", dense, misalign(&A::o), "args.o is 0x", "multiple of 2 bytes"},
      {"lse_misaligned", dense, misalign(&A::lse), "args.lse is 0x", "multiple of 4 bytes"},
      {"bias_misaligned", dense, misalign(&A::bias), "args.bias is 0x", "multiple of 2 bytes"},
      {"sink_misaligned", dense, misalign(&A::sink), "args.sink is 0x", "multiple of 4 bytes"},
      {"used_k_misaligned", dense, misalign(&A::used_k), "args.used_k is 0x", "multiple of 4 bytes"},
      {"cu_seqlens_q_misaligned", packed, misalign(&A::cu_seqlens_q), "args.cu_seqlens_q is 0x", "multiple of 4 bytes"},
      {"cu_seqlens_q_begins_late", packed, set(&A::cu_seqlens_q, q_begins_late), "args.cu_seqlens_q[0] is 1", "be 0"},
      {"cu_seqlens_q_decreases", packed, set(&A::cu_seqlens_q, q_decreases), "args.cu_seqlens_q[2] is 4",
       "at least 5, the one before it"},
      {"cu_seqlens_q_negative", packed, set(&A::cu_seqlens_q, q_negative), "args.cu_seqlens_q[1] is -3", "at least 0"},
      {"cu_seqlens_q_ends_early", packed, set(&A::cu_seqlens_q, q_ends_early), "args.cu_seqlens_q[2] is 8",
       "must be 9, desc.total_q"},
      {"cu_seqlens_q_ends_late", packed, set(&A::cu_seqlens_q, q_ends_late), "args.cu_seqlens_q[2] is 10",
       "must be 9, desc.total_q"},
      {"seq_q_below_a_length", packed, set(&A::cu_seqlens_q, q_too_long), "desc.seq_q is 5",
       "at least 6, the length that ends at args.cu_seqlens_q[2]"},
      {"cu_seqlens_k_begins_early", packed, set(&A::cu_seqlens_k, k_begins_early), "args.cu_seqlens_k[0] is -1",
       "must be 0"},
      {"cu_seqlens_k_decreases", packed, set(&A::cu_seqlens_k, k_decreases), "args.cu_seqlens_k[2] is 6",
       "at least 7, the one before it"},
      {"cu_seqlens_k_negative", packed, set(&A::cu_seqlens_k, k_negative), "args.cu_seqlens_k[1] is -9", "at least 0"},
      {"cu_seqlens_k_ends_early", packed, set(&A::cu_seqlens_k, k_ends_early), "args.cu_seqlens_k[2] is 11",
       "must be 12, desc.total_k"},
      {"cu_seqlens_k_ends_late", packed, set(&A::cu_seqlens_k, k_ends_late), "args.cu_seqlens_k[2] is 13",
       "must be 12, desc.total_k"},
      {"seq_k_below_a_length", packed, set(&A::cu_seqlens_k, k_too_long), "desc.seq_k is 7",
       "at least 8, the length that ends at args.cu_seqlens_k[2]"},
      {"used_q_negative", dense, set(&A::used_q, used_negative), "args.used_q[1] is -1", "in 0..5"},
      {"used_q_too_many", dense, set(&A::used_q, no_rows), "args.used_q[0] is 6", "in 0..5"},
      {"used_k_negative", dense, set(&A::used_k, used_negative), "args.used_k[1] is -1", "in 0..7"},
      {"used_k_too_many", dense, set(&A::used_k, no_keys), "args.used_k[1] is 8", "in 0..7"},
      {"used_k_of_packed", packed_in_part, set(&A::used_k, used_too_many), "args.used_k[0] is 8", "in 0.."},
      {"o_is_q", dense, [](D&, A& a) { a.q = a.o; }, "which is args.q too", "must not be an input"},
      {"o_is_k", dense, [](D&, A& a) { a.k = a.o; }, "which is args.k too", "must not be an input"},
      {"o_is_v", dense, [](D&, A& a) { a.v = a.o; }, "which is args.v too", "must not be an input"},
      {"lse_is_o", dense, [](D&, A& a) { a.lse = static_cast<float*>(a.o); }, "which is args.lse too", "of its own"},
      {"o_is_bias", dense, [](D&, A& a) { a.bias = a.o; }, "args.o is 0x",
       "which is args.bias too; the output must not"},
      {"o_is_mask", dense, [](D&, A& a) { a.mask = static_cast<uint8_t*>(a.o); }, "which is args.mask too", "an input"},
      {"o_is_sink", dense, [](D&, A& a) { a.sink = static_cast<float*>(a.o); }, "which is args.sink too", "an input"},
      {"lse_is_q", dense, [](D&, A& a) { a.q = a.lse; }, "args.lse is 0x", "which is args.q too; the output must not"},
      {"lse_is_k", dense, [](D&, A& a) { a.k = a.lse; }, "args.lse is 0x", "which is args.k too"},
      {"lse_is_v", dense, [](D&, A& a) { a.v = a.lse; }, "args.lse is 0x", "which is args.v too"},
      {"lse_is_bias", dense, [](D&, A& a) { a.bias = a.lse; }, "args.lse is 0x", "which is args.bias too"},
      {"lse_is_mask", dense, [](D&, A& a) { a.mask = reinterpret_cast<uint8_t*>(a.lse); }, "args.lse is 0x",
       "which is args.mask too"},
      {"lse_is_sink", dense, [](D&, A& a) { a.sink = a.lse; }, "args.lse is 0x", "which is args.sink too"},
      {"lse_is_used_k", dense, [](D&, A& a) { a.used_k = reinterpret_cast<int32_t*>(a.lse); }, "args.lse is 0x",
       "which is args.used_k too"},
  };
};

test::ForwardCall right_call(const char* problem) {
  test::ForwardCall call(desc_from(parse_problem(problem)));
  test::Numbers numbers(1);
  call.fill_lengths(numbers);
  call.fill_values(numbers);
  return call;
}

class WrongCalls : public testing::TestWithParam<WrongCall> {
 protected:
  void SetUp() override { ASSERT_EQ(attune_create(nullptr, &context_), ATTUNE_OK) << attune_last_error(); }
  void TearDown() override { attune_destroy(context_); }

  attune_context* context_ = nullptr;
};

TEST_P(WrongCalls, AreRefusedWithASentenceAndWriteNothing) {
  const WrongCall& wrong = GetParam();
  const test::ForwardCall right = right_call(wrong.problem);
  attune_forward_args args = right.args();
  ASSERT_EQ(attune_forward(context_, &right.desc, &args, nullptr), ATTUNE_OK)
      << "right before it is spoilt: " << attune_last_error();

  test::ForwardCall spoilt = right_call(wrong.problem);
  args = spoilt.args();
  wrong.spoil(spoilt.desc, args);
  EXPECT_EQ(attune_forward(context_, &spoilt.desc, &args, nullptr), ATTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(attune_last_error(), AllOf(HasSubstr(wrong.argument_and_value), HasSubstr(wrong.allowed)));
  EXPECT_TRUE(spoilt.outputs_untouched());
}

INSTANTIATE_TEST_SUITE_P(Forward, WrongCalls, testing::ValuesIn(Table::calls),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST(WrongCallsTable, HasAtLeastSixtyDistinctOnes) {
  std::set<std::string> distinct;
  for (const WrongCall& call : Table::calls) distinct.insert(std::string(call.argument_and_value) + call.allowed);
  EXPECT_GE(distinct.size(), 60u);
}

}  // namespace
}  // namespace attune
