// The CUDA driver does not survive a fork: a child of a process that has started it gets a sentence and no call of the
// driver, and computes on the CPU as ever.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "attune/attune.h"
#include "core/problem.hpp"
#include "tests/support/card.hpp"
#include "tests/support/child.hpp"
#include "tests/support/forward_call.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/shell.hpp"

namespace attune::gpu {
namespace {

using test::status_of_child;

constexpr const char* some_problem = "fwd b1 h2/2 q64 k64 d64 f16";

attune_forward_desc cuda_desc() {
  Problem problem = parse_problem(some_problem);
  problem.device_kind = DeviceKind::cuda;
  return desc_from(problem);
}

bool tells_of_the_fork(const std::string& text) { return text.find("does not survive a fork") != std::string::npos; }

bool says_that_it_was_forked(attune_status status) {
  return status == ATTUNE_NO_DEVICE && tells_of_the_fork(attune_last_error());
}

bool explanation_says_so(attune_context* context) {
  const attune_forward_desc desc = cuda_desc();
  char text[4096] = "";
  return attune_explain(context, &desc, text, sizeof text, nullptr) == ATTUNE_OK && tells_of_the_fork(text);
}

bool forward_is_refused(attune_context* context) {
  Problem problem = parse_problem(some_problem);
  test::ForwardCall call(desc_from(problem));
  call.desc.device_kind = ATTUNE_CUDA;
  const attune_forward_args args = call.args();
  return says_that_it_was_forked(attune_forward(context, &call.desc, &args, nullptr));
}

bool computes_on_the_cpu(attune_context* context) {
  test::ForwardCall call(desc_from(parse_problem(some_problem)));
  test::Numbers numbers(1);
  call.fill_values(numbers);
  return call.run(context) == ATTUNE_OK;
}

// With a context of the parent, and with one of its own.
bool child_is_refused(attune_context* inherited) {
  attune_context* own = nullptr;
  if (attune_create(nullptr, &own) != ATTUNE_OK) return false;
  const attune_forward_desc desc = cuda_desc();
  for (attune_context* context : {inherited, own}) {
    if (!says_that_it_was_forked(attune_prepare(context, &desc))) return false;
    if (!forward_is_refused(context) || !explanation_says_so(context) || !computes_on_the_cpu(context)) return false;
    attune_destroy(context);
  }
  return true;
}

// A process of its own: the library starts the driver once, and this one has perhaps begun with another.
test::Outcome outcome_of(const std::string& name) {
  return test::shell("ATTUNE_JIT=0 ATTUNE_PACK_DIR=/nonexistent ATTUNE_CACHE_DIR=/nonexistent /proc/" +
                     std::to_string(getpid()) + "/exe --gtest_also_run_disabled_tests --gtest_filter=" + name);
}

class ForkedDriver : public testing::Test {
 protected:
  void use_started_driver() {
    library = dlopen((test::build() + "/tests/libstarted_driver.so").c_str(), RTLD_NOW);
    ASSERT_NE(library, nullptr) << dlerror();
    ASSERT_EQ(attune_create(nullptr, &context), ATTUNE_OK) << attune_last_error();
  }
  void TearDown() override { attune_destroy(context); }

  void* library = nullptr;
  attune_context* context = nullptr;
};

TEST_F(ForkedDriver, DISABLED_StartedBefore) {
  use_started_driver();
  const attune_forward_desc desc = cuda_desc();
  ASSERT_EQ(attune_prepare(context, &desc), ATTUNE_UNSUPPORTED) << "the driver serves; its GPU can do nothing";
  EXPECT_EQ(status_of_child([&] { return child_is_refused(context); }), 0);
  EXPECT_EQ(attune_prepare(context, &desc), ATTUNE_UNSUPPORTED) << "as ever";
}

TEST_F(ForkedDriver, DISABLED_Starting) {
  use_started_driver();
  std::thread starter([&] {
    const attune_forward_desc desc = cuda_desc();
    EXPECT_EQ(attune_prepare(context, &desc), ATTUNE_UNSUPPORTED);
  });
  const auto is_starting = reinterpret_cast<bool (*)()>(dlsym(library, "driver_is_starting"));
  ASSERT_NE(is_starting, nullptr);
  while (!is_starting()) std::this_thread::yield();
  EXPECT_EQ(status_of_child([&] { return child_is_refused(context); }), 0);
  starter.join();
}

TEST_F(ForkedDriver, DISABLED_StartedInTheChildAlone) {
  use_started_driver();
  EXPECT_TRUE(computes_on_the_cpu(context));
  const auto child = [&] {
    // A copy of its own: the one that is loaded takes the parent for its process.
    dlclose(library);
    use_started_driver();
    const attune_forward_desc desc = cuda_desc();
    return attune_prepare(context, &desc) == ATTUNE_UNSUPPORTED;
  };
  EXPECT_EQ(status_of_child(child), 0);
}

TEST(ForkedChildOfADriver, IsRefusedWithASentence) {
  for (const char* name : {"StartedBefore", "Starting", "StartedInTheChildAlone"}) {
    const test::Outcome outcome = outcome_of(std::string("ForkedDriver.DISABLED_") + name);
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_THAT(outcome.output, testing::HasSubstr("[  PASSED  ] 1 test."));
  }
}

using CardForks = test::CardTest;

TEST_F(CardForks, AChildIsRefusedAndTheParentGoesOn) {
  test::CardCall call(*driver, some_problem, 1);
  call.use_workspace(*driver, context);
  const auto forward = [&] { return attune_forward(context, &call.desc, &call.args, nullptr); };
  ASSERT_EQ(forward(), ATTUNE_OK) << attune_last_error();
  const std::vector<std::byte> expected = call.result();
  EXPECT_EQ(status_of_child([&] { return says_that_it_was_forked(forward()) && child_is_refused(context); }), 0);
  ASSERT_EQ(forward(), ATTUNE_OK) << attune_last_error();
  EXPECT_EQ(call.result(), expected);
}

}  // namespace
}  // namespace attune::gpu
