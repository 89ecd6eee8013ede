// The public C++ header beside the library's own headers, which have an attune::Context and an attune::Error too.
#define ATTUNE_CPP_QUALIFIED
#include <attune/attune.hpp>

#include <gtest/gtest.h>

#include <type_traits>

#include "core/error.hpp"
#include "dispatch/context.hpp"

namespace {

TEST(CppBesideSources, TheNamesDoNotClash) {
  static_assert(!std::is_same_v<attune::Context, attune::api::Context>);
  static_assert(!std::is_same_v<attune::Error, attune::api::Error>);
  attune::api::Context context;
  EXPECT_NE(context.handle(), nullptr);
  try {
    context.forward({});
    FAIL() << "an empty call must be refused: its dims are 0";
  } catch (const attune::api::Error& error) {
    EXPECT_EQ(error.status(), ATTUNE_INVALID_ARGUMENT);
  }
}

}  // namespace
