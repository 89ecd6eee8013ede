// Wrong calls of attune_backward, as wrong_calls_test.cpp has them for attune_forward; and right ones of old and new
// programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "attune/attune.h"
#include "core/operation.hpp"
#include "lab/check/inputs.hpp"
#include "tests/api/spoil.hpp"

namespace attune {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using D = attune_backward_desc;
using A = attune_backward_args;

constexpr int64_t big = int64_t{1} << 62;
constexpr const char* plain = "bwd b2 h4/2 q5 k6 d8 f16";
constexpr const char* rich = "bwd b2 h4/2 q5 k6 d8 f16 sink bias=1hqk mask=b11k dlse dsink dbias";
constexpr const char* packed = "bwd b2 h4/2 q5 k6 d8 f16 var=6,8 used-k";

struct WrongBackward {
  const char* name;
  const char* problem;
  test::Spoil<D, A>::Function spoil;
  const char* argument_and_value;
  const char* allowed;
};

struct Table : test::Spoil<D, A> {
  static inline const std::vector<WrongBackward> calls = {
      {"struct_size", plain, set(&D::struct_size, 3), "desc->struct_size is 3", "must be sizeof"},
      {"args_struct_size", plain, set(&A::struct_size, 5), "args->struct_size is 5", "must be sizeof"},
      {"reserved", plain, set(&D::reserved, 1), "desc.reserved is 1", "must be 0"},
      {"args_reserved", plain, set(&A::reserved, 2), "args.reserved is 2", "must be 0"},
      {"features", plain, set(&D::features, 0x20000), "desc.features is 0x20000", "are unknown"},
      {"dsink_without_sink", plain, set(&D::features, ATTUNE_DSINK), "desc.features is 0x4000",
       "ATTUNE_DSINK (0x4000) is allowed only together with ATTUNE_SINK (0x8)"},
      {"dbias_without_bias", plain, set(&D::features, ATTUNE_DBIAS), "desc.features is 0x8000",
       "ATTUNE_DBIAS (0x8000) is allowed only together with ATTUNE_BIAS (0x10)"},
      {"device_kind", plain, set(&D::device_kind, 5), "desc.device_kind is 5", "ATTUNE_CUDA (1)"},
      {"dtype", plain, set(&D::dtype, -4), "desc.dtype is -4", "ATTUNE_F16 (0)"},
      {"causal", plain, set(&D::causal, 3), "desc.causal is 3", "ATTUNE_CAUSAL_NONE (0)"},
      {"batch", plain, set(&D::batch, -1), "desc.batch is -1", "0.."},
      {"heads_kv", plain, set(&D::heads_kv, 3), "desc.heads_kv is 3", "must divide heads_q (4)"},
      {"dim_v", plain, set(&D::dim_v, 513), "desc.dim_v is 513", "1..512"},
      {"total_q", plain, set(&D::total_q, 1), "desc.total_q is 1", "without ATTUNE_PACKED"},
      {"bias_dtype", rich, set(&D::bias_dtype, ATTUNE_BF16), "desc.bias_dtype is bf16", "or f32"},
      {"dout_reach", plain, set(&D::dout, &attune_strides::row, big), "desc.dout.row is 4611686018427387904",
       "below 2^63"},
      {"dlse_reach", rich, set(&D::dlse, &attune_strides::head, big), "desc.dlse.head is 4611686018427387904", "2^63"},
      {"dq_overlap", plain, set(&D::dq, &attune_strides::head, 3), "desc.dq.head is 3", "at least 8"},
      {"dk_overlap", plain, set(&D::dk, &attune_strides::row, 0), "desc.dk.row is 0", "share memory"},
      {"dv_overlap", plain, set(&D::dv, &attune_strides::batch, 1), "desc.dv.batch is 1", "share memory"},
      {"dbias_overlap", rich, set(&D::dbias, &attune_score_strides::query, 5), "desc.dbias.query is 5", "at least 6"},
      {"dbias_not_broadcast", rich, set(&D::dbias, &attune_score_strides::batch, 1000),
       "desc.dbias.batch is 1000 and desc.bias.batch is 0", "one may be 0 only where the other is"},
      {"dbias_forgotten", rich, [](D& d, A&) { d.dbias = {}; }, "desc.dbias.head is 0 and desc.bias.head is 30",
       "one may be 0 only where the other is"},
      {"q_null", plain, set(&A::q, nullptr), "args.q is NULL", "the queries"},
      {"o_null", plain, set(&A::o, nullptr), "args.o is NULL", "the output"},
      {"lse_null", plain, set(&A::lse, nullptr), "args.lse is NULL", "the log-sum-exp"},
      {"dout_null", plain, set(&A::dout, nullptr), "args.dout is NULL", "the gradient of the output"},
      {"dq_null", plain, set(&A::dq, nullptr), "args.dq is NULL", "the gradient of the queries"},
      {"dk_null", plain, set(&A::dk, nullptr), "args.dk is NULL", "the gradient of the keys"},
      {"dv_null", plain, set(&A::dv, nullptr), "args.dv is NULL", "the gradient of the values"},
      {"dlse_null", rich, set(&A::dlse, nullptr), "args.dlse is NULL", "since desc.features has ATTUNE_DLSE"},
      {"dsink_null", rich, set(&A::dsink, nullptr), "args.dsink is NULL", "since desc.features has ATTUNE_DSINK"},
      {"dbias_null", rich, set(&A::dbias, nullptr), "args.dbias is NULL", "since desc.features has ATTUNE_DBIAS"},
      {"cu_seqlens_null", packed, set(&A::cu_seqlens_q, nullptr), "args.cu_seqlens_q is NULL", "batch + 1 offsets"},
      {"dout_misaligned", plain, misalign(&A::dout), "args.dout is 0x", "multiple of 2 bytes"},
      {"dq_misaligned", plain, misalign(&A::dq), "args.dq is 0x", "multiple of 2 bytes"},
      {"dsink_misaligned", rich, misalign(&A::dsink), "args.dsink is 0x", "multiple of 4 bytes"},
      {"dq_is_q", plain, [](D&, A& a) { a.q = a.dq; }, "which is args.q too", "the output must not be an input"},
      {"dv_is_dout", plain, [](D&, A& a) { a.dout = a.dv; }, "which is args.dout too",
       "the output must not be an input"},
      {"dk_is_dv", plain, [](D&, A& a) { a.dv = a.dk; }, "which is args.dv too", "memory of its own"},
      {"dbias_is_bias", rich, [](D&, A& a) { a.bias = a.dbias; }, "which is args.bias too",
       "the output must not be an input"},
  };
};

struct Call {
  explicit Call(const char* problem) {
    cpu::Threads threads{attune_options{}};
    tensors = lab::make_inputs(parse_problem(problem), lab::InputKind::normal, 1, lab::Storage::dense, threads);
    desc = backward_desc_from(without_spare_rows(tensors));
    args = backward_args_of(tensors.operands());
  }

  bool outputs_untouched() const {
    bool untouched = true;
    lab::for_each_buffer(tensors, [&](const OperandRow& row, size_t, const lab::Buffer& buffer) {
      if (is_written(tensors.problem, row))
        untouched = untouched && std::ranges::all_of(buffer.whole(), [](std::byte b) { return b == std::byte{0xff}; });
    });
    return untouched;
  }

  lab::Tensors tensors;
  D desc;
  A args;
};

class WrongBackwards : public testing::TestWithParam<WrongBackward> {};

TEST_P(WrongBackwards, AreRefusedWithASentenceAndWriteNothing) {
  attune_context* context = nullptr;
  ASSERT_EQ(attune_create(nullptr, &context), ATTUNE_OK);
  Call right(GetParam().problem);
  ASSERT_EQ(attune_backward(context, &right.desc, &right.args, nullptr), ATTUNE_OK)
      << "right before it is spoilt: " << attune_last_error();
  EXPECT_FALSE(right.outputs_untouched());

  Call spoilt(GetParam().problem);
  GetParam().spoil(spoilt.desc, spoilt.args);
  EXPECT_EQ(attune_backward(context, &spoilt.desc, &spoilt.args, nullptr), ATTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(attune_last_error(), AllOf(HasSubstr(GetParam().argument_and_value), HasSubstr(GetParam().allowed)));
  EXPECT_TRUE(spoilt.outputs_untouched());
  attune_destroy(context);
}

INSTANTIATE_TEST_SUITE_P(Backward, WrongBackwards, testing::ValuesIn(Table::calls),
                         [](const auto& instance) { return std::string(instance.param.name); });

class BackwardCalls : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(attune_create(nullptr, &context_), ATTUNE_OK); }
  void TearDown() override { attune_destroy(context_); }
  attune_context* context_ = nullptr;
};

TEST_F(BackwardCalls, PrepareWorkspaceAndExplanation) {
  const Call call(rich);
  EXPECT_EQ(attune_backward_prepare(context_, &call.desc), ATTUNE_OK) << attune_last_error();
  uint64_t bytes = ~uint64_t{0};
  EXPECT_EQ(attune_backward_workspace_bytes(context_, &call.desc, &bytes), ATTUNE_OK);
  EXPECT_EQ(bytes, 0u) << "on the CPU";
  char text[2000];
  size_t length = 0;
  EXPECT_EQ(attune_backward_explain(context_, &call.desc, text, sizeof text, &length), ATTUNE_OK);
  EXPECT_EQ(length, std::strlen(text));
  EXPECT_THAT(text, AllOf(HasSubstr("problem: bwd b2 h4/2"), HasSubstr("kernel: cpu/bwd"), HasSubstr("blocks: 64")));
}

TEST_F(BackwardCalls, WithoutTheLseBitIsTheSame) {
  Call with(plain), without(plain);
  without.desc.features &= ~ATTUNE_LSE;
  ASSERT_EQ(attune_backward(context_, &with.desc, &with.args, nullptr), ATTUNE_OK) << attune_last_error();
  ASSERT_EQ(attune_backward(context_, &without.desc, &without.args, nullptr), ATTUNE_OK) << attune_last_error();
  for (const Operand output : {Operand::dq, Operand::dk, Operand::dv})
    EXPECT_TRUE(std::ranges::equal(with.tensors[output].whole(), without.tensors[output].whole()));
}

TEST_F(BackwardCalls, AStructOfANewerHeaderMayHaveZerosBehind) {
  struct {
    D known;
    int64_t unknown;
  } newer{Call(plain).desc, 0};
  newer.known.struct_size = sizeof newer;
  Call call(plain);
  EXPECT_EQ(attune_backward(context_, &newer.known, &call.args, nullptr), ATTUNE_OK) << attune_last_error();
  newer.unknown = 1;
  EXPECT_EQ(attune_backward(context_, &newer.known, &call.args, nullptr), ATTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(attune_last_error(), HasSubstr("(ABI 3) does not know that field"));
}

TEST_F(BackwardCalls, WithoutQueriesTheGradientsOfKeysAreZeros) {
  Call call("bwd b2 h2/1 q0 k3 d4 f32 sink dsink");
  ASSERT_EQ(attune_backward(context_, &call.desc, &call.args, nullptr), ATTUNE_OK) << attune_last_error();
  for (const Operand output : {Operand::dk, Operand::dv, Operand::dsink}) {
    const auto elements = call.tensors[output].elements();
    EXPECT_FALSE(elements.empty());
    EXPECT_TRUE(std::ranges::all_of(elements, [](std::byte b) { return b == std::byte{0}; })) << row_of(output).name;
  }
  Call nothing("bwd b0 h2/1 q3 k3 d4 f32");
  nothing.args = {};
  nothing.args.struct_size = sizeof nothing.args;
  EXPECT_EQ(attune_backward(context_, &nothing.desc, &nothing.args, nullptr), ATTUNE_OK) << "no pointer is needed";
}

TEST_F(BackwardCalls, AStreamOnTheCpuIsRefused) {
  Call call(plain);
  int stream = 0;
  EXPECT_EQ(attune_backward(context_, &call.desc, &call.args, &stream), ATTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(attune_last_error(), HasSubstr("stream is 0x"));
  EXPECT_TRUE(call.outputs_untouched());
}

}  // namespace
}  // namespace attune
