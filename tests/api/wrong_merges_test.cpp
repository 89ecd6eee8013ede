// Wrong calls of attune_merge, as wrong_calls_test.cpp has them for attune_forward.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "attune/attune.h"
#include "tests/api/spoil.hpp"

namespace attune {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using D = attune_merge_desc;
using A = attune_merge_args;

constexpr int64_t big = int64_t{1} << 62;

// The array belongs to the test, which left it writable.
template <typename T>
T& second(T const* array) {
  return const_cast<T*>(array)[1];
}

struct WrongMerge {
  const char* name;
  test::Spoil<D, A>::Function spoil;
  const char* argument_and_value;
  const char* allowed;
};

struct Table : test::Spoil<D, A> {
  static inline const std::vector<WrongMerge> calls = {
      {"struct_size", set(&D::struct_size, 3), "desc->struct_size is 3", "must be sizeof"},
      {"reserved", set(&D::reserved, 1), "desc.reserved is 1", "must be 0"},
      {"args_reserved", set(&A::reserved, 2), "args.reserved is 2", "must be 0"},
      {"device_kind", set(&D::device_kind, 5), "desc.device_kind is 5", "ATTUNE_CUDA (1)"},
      {"device_index", set(&D::device_index, 2), "desc.device_index is 2", "0 on the CPU"},
      {"part_dtype", set(&D::part_dtype, 4), "desc.part_dtype is 4", "ATTUNE_F16 (0)"},
      {"dtype", set(&D::dtype, -4), "desc.dtype is -4", "ATTUNE_F16 (0)"},
      {"parts_0", set(&D::parts, 0), "desc.parts is 0", "1..256"},
      {"parts_257", set(&D::parts, 257), "desc.parts is 257", "1..256"},
      {"batch", set(&D::batch, -1), "desc.batch is -1", "0.."},
      {"heads", set(&D::heads, -1), "desc.heads is -1", "0.."},
      {"rows", set(&D::rows, -1), "desc.rows is -1", "0.."},
      {"dim_0", set(&D::dim, 0), "desc.dim is 0", "1..512"},
      {"dim_513", set(&D::dim, 513), "desc.dim is 513", "1..512"},
      {"part_o_reach", set(&D::part_o, &attune_strides::row, big), "desc.part_o.row is 4611686018427387904",
       "below 2^63"},
      {"part_lse_reach", set(&D::part_lse, &attune_strides::head, big), "desc.part_lse.head is 4611686018427387904",
       "2^63"},
      {"o_overlap", set(&D::o, &attune_strides::row, 3), "desc.o.row is 3", "at least 4"},
      {"lse_overlap", set(&D::lse, &attune_strides::row, 0), "desc.lse.row is 0", "at least 1"},
      {"part_o_null", set(&A::part_o, nullptr), "args.part_o is NULL", "array of desc.parts pointers"},
      {"part_lse_null", set(&A::part_lse, nullptr), "args.part_lse is NULL", "array of desc.parts pointers"},
      {"o_null", set(&A::o, nullptr), "args.o is NULL", "the output"},
      {"o_misaligned", misalign(&A::o), "args.o is 0x", "multiple of 4 bytes"},
      {"lse_misaligned", misalign(&A::lse), "args.lse is 0x", "multiple of 4 bytes"},
      {"one_part_null", [](D&, A& a) { second(a.part_o) = nullptr; }, "args.part_o[1] is NULL", "a partial output"},
      {"one_part_lse_null", [](D&, A& a) { second(a.part_lse) = nullptr; }, "args.part_lse[1] is NULL",
       "a partial log-sum-exp"},
      {"in_place_dtype",
       [](D& d, A& a) {
         second(a.part_o) = a.o;
         d.dtype = ATTUNE_F16;
       },
       "args.o is args.part_o[1] too", "desc.dtype must then equal desc.part_dtype"},
      {"in_place_strides",
       [](D& d, A& a) {
         second(a.part_o) = a.o;
         d.o = {100, 8, 24};
       },
       "args.o is args.part_o[1] too", "desc.o must then equal desc.part_o"},
      {"in_place_lse_strides",
       [](D& d, A& a) {
         second(a.part_lse) = a.lse;
         d.lse = {6, 2, 1};
       },
       "args.lse is args.part_lse[1] too", "desc.lse must then equal desc.part_lse"},
      {"o_is_lse", [](D&, A& a) { a.lse = static_cast<float*>(a.o); }, "args.o is 0x",
       "which is args.lse too; each output needs memory of its own"},
      {"o_is_part_lse", [](D&, A& a) { second(a.part_lse) = static_cast<float*>(a.o); },
       "args.o is args.part_lse[1] too", "the output must not be an input"},
      {"lse_is_part_o", [](D&, A& a) { second(a.part_o) = a.lse; }, "args.lse is args.part_o[1] too",
       "the output must not be an input"},
  };
};

class WrongMerges : public testing::TestWithParam<WrongMerge> {};

TEST_P(WrongMerges, AreRefusedWithASentenceAndWriteNothing) {
  attune_context* context = nullptr;
  ASSERT_EQ(attune_create(nullptr, &context), ATTUNE_OK);
  D desc{};
  desc.struct_size = sizeof desc;
  desc.part_dtype = desc.dtype = ATTUNE_F32;
  desc.parts = 2;
  desc.batch = 1;
  desc.heads = 2;
  desc.rows = 3;
  desc.dim = 4;
  desc.part_o = desc.o = {24, 4, 12};
  desc.part_lse = desc.lse = {6, 1, 3};
  std::vector<float> part(24, 1), part_lse(6, 0), o(200, -1), lse(6, -1);
  const void* parts[] = {part.data(), part.data()};
  const float* part_lses[] = {part_lse.data(), part_lse.data()};
  A args{sizeof args, 0, parts, part_lses, o.data(), lse.data()};
  ASSERT_EQ(attune_merge(context, &desc, &args, nullptr), ATTUNE_OK) << attune_last_error();
  o.assign(o.size(), -1);
  lse.assign(lse.size(), -1);

  GetParam().spoil(desc, args);
  EXPECT_EQ(attune_merge(context, &desc, &args, nullptr), ATTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(attune_last_error(), AllOf(HasSubstr(GetParam().argument_and_value), HasSubstr(GetParam().allowed)));
  EXPECT_THAT(o, testing::Each(-1.0f));
  EXPECT_THAT(lse, testing::Each(-1.0f));
  attune_destroy(context);
}

INSTANTIATE_TEST_SUITE_P(Merge, WrongMerges, testing::ValuesIn(Table::calls),
                         [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace attune
