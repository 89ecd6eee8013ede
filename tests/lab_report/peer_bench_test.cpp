// attune bench --peers as a user meets it, with a script in the place of Python that has measured already.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/problem.hpp"
#include "lab/measure/result_json.hpp"
#include "lab/report/bars.hpp"
#include "records.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/shell.hpp"

namespace attune::lab {
namespace {

using nlohmann::json;
using testing::HasSubstr;
namespace fs = std::filesystem;

class PeerBenchCommand : public testing::Test {
 protected:
  // A host that ends as told, after writing these lines.
  void host_writes(const std::vector<json>& lines, const std::string& ending = "exit 0") {
    std::ofstream file(directory.path() / "lines.jsonl");
    for (const json& line : lines) file << line.dump() << '\n';
    std::ofstream(directory.path() / "host.sh")
        << "while [ \"$1\" != --json ]; do shift; done\ncp " << (directory.path() / "lines.jsonl") << " \"$2\"\n"
        << ending << '\n';
    std::ofstream(directory.path() / "python")
        << "#!/bin/sh\nexec sh " << (directory.path() / "host.sh") << " \"$@\"\n";
    fs::permissions(directory.path() / "python", fs::perms::owner_all);
    for (const char* library : {"libattune_lab_engine.so", "libattune.so"}) std::ofstream(directory.path() / library);
  }

  static json line_of(const std::string& problem) {
    const SpeedResult result = steady_result(problem, {{"attune", 4e-4}, {"cudnn", 5e-4}, {"flash", 9e-4}});
    return {{"problem", problem},
            {"flops", useful_flops(parse_problem(problem))},
            {"kernels", {"attune"}},
            {"checks", {{"attune", {{"rel_rms", 1e-3}, {"rel_rms_bound", 2e-3}}}}},
            {"facts", json::object()},
            {"absent", {{"fa3", "not here"}}},
            {"wrong", json::object()},
            {"failed", ""},
            {"result", to_json(result.result)}};
  }

  test::Outcome bench(const std::string& arguments) {
    return test::shell("ATTUNE_LAB_LIBRARY_DIR=" + directory.path().string() + " " + test::build() +
                       "/attune bench --peers cudnn,flash,fa3 --python " + (directory.path() / "python").string() +
                       " " + arguments);
  }

  const json head = {{"environment", {{"card", "NVIDIA H200"}, {"architecture", "sm_90a"}, {"sm_count", "132"}}}};
  const test::TemporaryDirectory directory;
};

constexpr const char* llama = "fwd b1 h32/32 q2048 k2048 d128 bf16 causal-br";

TEST_F(PeerBenchCommand, EndsWithTableBarsAndARecordThatHolds) {
  host_writes({head, line_of(llama)});
  std::ofstream(directory.path() / "ratios.jsonl")
      << R"({"B": 1, "H": 32, "S": 2048, "D": 128, "causal": true, "dt": "bf16", "speed_vs_cudnn": {"fa3": [1.1, 1, 1.2]}})"
      << '\n';
  const auto outcome = bench("--recorded " + (directory.path() / "ratios.jsonl").string() + " --evidence " +
                             (directory.path() / "evidence").string() + " '" + llama + "'");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("1 problem: checked first, then timed; about"));
  EXPECT_THAT(outcome.output, HasSubstr("1.250 [1.250, 1.250]"));
  EXPECT_THAT(outcome.output, HasSubstr("faster than fa3"));
  EXPECT_THAT(outcome.output, testing::ContainsRegex("llama7b, bf16 +1 +1.136 .*1.05 .*met"));
  EXPECT_THAT(outcome.output, HasSubstr("absent: fa3: not here"));
  const fs::path record = *fs::directory_iterator(directory.path() / "evidence");
  EXPECT_NO_THROW(load_record(record.string()));
  EXPECT_EQ(test::shell(test::build() + "/attune evidence verify " + record.string()).status, 0);
}

TEST_F(PeerBenchCommand, JsonHasRowsAndBars) {
  host_writes({head, line_of(llama)});
  const auto outcome = bench(std::string("--json '") + llama + "'");
  EXPECT_EQ(outcome.status, 0);
  std::istringstream output(outcome.output);
  std::vector<json> objects;  // what is for people goes to standard error
  for (std::string line; std::getline(output, line);)
    if (line.starts_with('{')) objects.push_back(json::parse(line));
  ASSERT_EQ(objects.size(), 2u) << outcome.output;
  EXPECT_EQ(objects[0].at("peers").at("cudnn").at("verdict"), "faster");
  EXPECT_EQ(objects[1].at("state"), "incomplete") << "fa3 was neither measured nor recorded";
}

TEST_F(PeerBenchCommand, WhatWasMeasuredIsShownWhenTheHostFails) {
  host_writes({head, line_of(llama)}, "exit 1");
  EXPECT_EQ(bench(std::string("'") + llama + "'").status, 1);
  host_writes({head, line_of(llama)}, "kill -9 $$");
  const auto outcome = bench(std::string("'") + llama + "'");
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.output, HasSubstr("1.250 [1.250, 1.250]"));
  EXPECT_THAT(outcome.output, HasSubstr("was ended by signal 9"));
  host_writes({}, "echo it has no GPU >&2; exit 3");
  EXPECT_EQ(bench(std::string("'") + llama + "'").status, 3);
}

}  // namespace
}  // namespace attune::lab
