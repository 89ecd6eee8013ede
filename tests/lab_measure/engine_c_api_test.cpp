// The engine's C functions, as a host in another language uses them.
#include "lab/measure/engine_c_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace attune::lab {
namespace {

using nlohmann::json;
using testing::HasSubstr;

struct Work {
  int steps = 0;
  int made = 0;
  static void run(void* user) {
    volatile double value = 1;
    for (int i = 0; i < static_cast<Work*>(user)->steps; ++i) value = value * 1.0000001;
  }
  static void make(void* user, uint64_t) { ++static_cast<Work*>(user)->made; }
};

attune_lab_call call_of(const char* name, Work& work, attune_lab_role role = ATTUNE_LAB_CONTENDER) {
  return {sizeof(attune_lab_call), role, name, Work::run, Work::make, &work};
}

class EngineCApi : public testing::Test {
 protected:
  void SetUp() override {
    constexpr const char* protocol = R"({"rounds": 7, "samples": 1, "sample_seconds": 2e-4, "seed": 3})";
    ASSERT_EQ(attune_lab_session_create(protocol, -1, &session), 0) << attune_lab_last_error();
  }
  void TearDown() override { attune_lab_session_destroy(session); }

  attune_lab_session* session = nullptr;
};

TEST_F(EngineCApi, MeasuresCallsAndReturnsJson) {
  Work one{2000}, twin{2000}, two{40000};
  const attune_lab_call calls[] = {call_of("one", one), call_of("one", twin, ATTUNE_LAB_TWIN), call_of("two", two)};
  for (const auto& call : calls) ASSERT_EQ(attune_lab_add_call(session, &call), 0) << attune_lab_last_error();
  double furthest = 0;
  const auto progress = [](void* user, const char* contender, double done) -> int32_t {
    EXPECT_STRNE(contender, "");
    *static_cast<double*>(user) = done;
    return 0;
  };
  const char* text = nullptr;
  ASSERT_EQ(attune_lab_run(session, progress, &furthest, &text), 0) << attune_lab_last_error();
  const json result = json::parse(text);
  EXPECT_EQ(result["measurement"]["protocol"]["rounds"], 7);
  EXPECT_EQ(result["measurement"]["contenders"].size(), 3u);
  EXPECT_GT(result["analysis"]["comparisons"][0]["ratio"], 4)
      << "twenty times the work, on a machine with others on it";
  // How much is done is guessed from a first look at each call, on a machine with others on it.
  EXPECT_GT(furthest, 0);
  EXPECT_LE(furthest, 1);
  EXPECT_GE(one.made, 1);

  const char* analysis = nullptr;
  ASSERT_EQ(attune_lab_analyse(session, result["measurement"].dump().c_str(), &analysis), 0);
  EXPECT_EQ(json::parse(analysis), result["analysis"]);
}

TEST_F(EngineCApi, ProgressCanEndTheRun) {
  Work one{1000};
  const attune_lab_call call = call_of("one", one);
  ASSERT_EQ(attune_lab_add_call(session, &call), 0);
  const char* text = nullptr;
  EXPECT_NE(attune_lab_run(session, [](void*, const char*, double) -> int32_t { return 1; }, nullptr, &text), 0);
  EXPECT_THAT(attune_lab_last_error(), HasSubstr("ended by the progress function"));
  EXPECT_EQ(text, nullptr);
}

TEST_F(EngineCApi, TellsTheEnvironment) {
  const char* text = nullptr;
  ASSERT_EQ(attune_lab_environment(session, &text), 0);
  EXPECT_TRUE(json::parse(text).contains("processor"));
}

TEST_F(EngineCApi, RefusesWithASentence) {
  attune_lab_session* other = nullptr;
  EXPECT_NE(attune_lab_session_create(R"({"round": 7})", -1, &other), 0);
  EXPECT_THAT(attune_lab_last_error(), HasSubstr("no field 'round'"));
  EXPECT_NE(attune_lab_session_create("{", -1, &other), 0);
  EXPECT_THAT(attune_lab_last_error(), HasSubstr("not JSON"));
  EXPECT_NE(attune_lab_session_create(R"({"rounds": 0})", -1, &other), 0);
  EXPECT_THAT(attune_lab_last_error(), HasSubstr("rounds is 0"));
  EXPECT_EQ(other, nullptr);

  attune_lab_graph graph{};
  EXPECT_NE(attune_lab_add_graph(session, &graph), 0);
  EXPECT_THAT(attune_lab_last_error(), HasSubstr("struct_size is 0"));
  graph.struct_size = sizeof graph;
  EXPECT_NE(attune_lab_add_graph(session, &graph), 0);
  EXPECT_THAT(attune_lab_last_error(), HasSubstr("without a GPU"));

  Work work{1};
  attune_lab_call call = call_of("", work);
  EXPECT_NE(attune_lab_add_call(session, &call), 0);
  call = call_of("one", work, 5);
  EXPECT_NE(attune_lab_add_call(session, &call), 0);
  EXPECT_THAT(attune_lab_last_error(), HasSubstr("role is 5"));
  EXPECT_NE(attune_lab_add_call(nullptr, &call), 0);
  const char* text = nullptr;
  EXPECT_NE(attune_lab_run(session, nullptr, nullptr, &text), 0);
  EXPECT_THAT(attune_lab_last_error(), HasSubstr("no contender"));
  EXPECT_NE(attune_lab_analyse(session, "{}", &text), 0);
}

TEST(EngineCApiVersion, IsTheHeaders) { EXPECT_EQ(attune_lab_engine_version(), ATTUNE_LAB_ENGINE_VERSION); }

}  // namespace
}  // namespace attune::lab
