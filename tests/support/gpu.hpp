// Tests that need a GPU: skipped with the reason where there is none, marked where there is one.
#pragma once

#include <gtest/gtest.h>

#include "gpu/driver.hpp"

// First statement of such a test, or of its fixture's SetUp. `./dev test --prebuilt` counts the tests that carry the
// mark, and fails if there is none: a run that skipped everything must not look like a run that passed.
#define ATTUNE_REQUIRE_GPU()                                                                                \
  do {                                                                                                      \
    if (attune::gpu::find_driver() == nullptr) GTEST_SKIP() << "NO GPU: " << attune::gpu::driver_absence(); \
    testing::Test::RecordProperty("gpu", "used");                                                           \
  } while (false)
