// bench --peers: what the Python host is asked, and what becomes of its exit status.
#include "lab/cmd/peers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/problem.hpp"
#include "lab/check/lengths.hpp"

namespace attune::lab {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;

void touch(const fs::path& file) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << "x";
}

class Peers : public testing::Test {
 protected:
  Peers() {
    root = fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root);
    fs::create_directories(root / "build");
    options.peers = {"cudnn", "flash"};
  }
  ~Peers() override { fs::remove_all(root); }

  PeerRun run_of(const Protocol& protocol = {}) {
    return peer_run(options, problems, {}, protocol, "out.jsonl", root / "build");
  }

  fs::path root;
  PeerOptions options;
  std::vector<std::string> problems = {"fwd b1 h2/2 q8 k8 d64 f16"};
};

TEST_F(Peers, ComputeAttentionAndItsGradients) {
  problems = {"merge p2 b1 h2 q8 d64 f16"};
  EXPECT_THAT([&] { run_of(); },
              testing::ThrowsMessage<Error>(HasSubstr("peers are measured on problems that begin with fwd or bwd")));
}

TEST_F(Peers, AsksForProblemsWithTheirFlops) {
  touch(root / "build/libattune_lab_engine.so");
  touch(root / "build/libattune.so");
  touch(root / "python/attune/lab/__main__.py");
  Protocol protocol;
  protocol.rounds = 9;
  const PeerContenders contenders{{"sm90/a"}, {"libmine.so"}, {{problems[0], {"libother.so"}}}};
  const PeerRun run = peer_run(options, problems, contenders, protocol, "out.jsonl", root / "build");
  EXPECT_EQ(run.command[0], "python3");
  const std::vector<std::string> words = {
      "attune.lab", "cudnn,flash", "sm90/a", "libmine.so", "9", "out.jsonl", (root / "build/libattune.so").string()};
  EXPECT_THAT(run.command, IsSupersetOf(words));
  const auto line = nlohmann::json::parse(run.input);
  EXPECT_EQ(line["problem"], problems[0]);
  EXPECT_EQ(line["flops"], 2 * 8 * 8 * 4 * 64);
  EXPECT_EQ(line["gate"], (nlohmann::json{{"rms_factor", 1.5}, {"max_ulp", 3.0}, {"lse", 2e-5}}));
  EXPECT_EQ(line["without"], nlohmann::json{"libother.so"}) << "it did not pass there";
  EXPECT_FALSE(line.contains("lengths"));
  EXPECT_EQ(run.python_path, (root / "python").string());

  problems = {"fwd b2 h2/2 q1 k8 d64 f16 used-k"};
  const auto with_lengths = nlohmann::json::parse(run_of().input);
  EXPECT_EQ(with_lengths["lengths"], to_json(timed_lengths(parse_problem(problems[0]))));
}

TEST_F(Peers, FindsTheLibrariesOfAnInstallation) {
  touch(root / "lib/libattune_lab_engine.so");
  touch(root / "lib/libattune.so");
  const PeerRun run = run_of();
  EXPECT_THAT(run.command, testing::Contains((root / "lib/libattune_lab_engine.so").string()));
  EXPECT_EQ(run.python_path, "");
}

TEST_F(Peers, AFolderOfLibrariesCanBeNamed) {
  touch(root / "elsewhere/libattune_lab_engine.so");
  touch(root / "elsewhere/libattune.so");
  setenv("ATTUNE_LAB_LIBRARY_DIR", (root / "elsewhere").c_str(), 1);
  const PeerRun run = run_of();
  unsetenv("ATTUNE_LAB_LIBRARY_DIR");
  EXPECT_THAT(run.command, testing::Contains((root / "elsewhere/libattune.so").string()));
}

TEST_F(Peers, SaysWhichLibraryIsMissing) {
  touch(root / "build/libattune.so");
  EXPECT_THAT([&] { run_of(); },
              testing::ThrowsMessage<Error>(HasSubstr("--peers needs libattune_lab_engine.so, which is neither in")));
}

TEST_F(Peers, OnlySteady) {
  Protocol protocol;
  protocol.mode = "cold";
  EXPECT_THAT([&] { run_of(protocol); }, testing::ThrowsMessage<Error>(HasSubstr("--mode cold does not go with")));
}

TEST_F(Peers, TheHostReadsTheProblemsAndItsStatusIsTheResult) {
  testing::internal::CaptureStdout();
  const int status = run_peers({{"sh", "-c", "cat; echo \"$PYTHONPATH\"; exit 3"}, "one\ntwo\n", "/some/package"});
  EXPECT_THAT(testing::internal::GetCapturedStdout(), testing::StartsWith("one\ntwo\n/some/package"));
  EXPECT_EQ(status, 3);
}

TEST_F(Peers, AHostThatIsAbsentOrDiesIsAnError) {
  EXPECT_THAT([] { run_peers({{"no-such-python"}, "", ""}); },
              testing::ThrowsMessage<Error>(HasSubstr("'no-such-python' cannot be started")));
  EXPECT_THAT([] { run_peers({{"sh", "-c", "kill -9 $$"}, "", ""}); },
              testing::ThrowsMessage<Error>(HasSubstr("was ended by signal 9")));
}

TEST_F(Peers, LinesOfAHostThatDiedAreReadAsFarAsTheyGo) {
  const std::string path = root / "lines.jsonl";
  std::ofstream(path) << "{\"environment\": {}}\n{\"problem\": \"one\"}\n{\"problem\": \"tw";
  const HostLines lines = read_host_lines(path);
  EXPECT_TRUE(lines.head.contains("environment"));
  ASSERT_EQ(lines.problems.size(), 1u);
  EXPECT_EQ(lines.problems[0]["problem"], "one");
  EXPECT_TRUE(read_host_lines(root / "absent").head.is_null());
}

TEST_F(Peers, AreNamedWithCommas) {
  CLI::App app;
  PeerOptions given;
  given.add_to(app);
  EXPECT_FALSE(given.asked());
  const std::vector<const char*> words = {"bench", "--peers", "cudnn,fa3"};
  app.parse(static_cast<int>(words.size()), words.data());
  EXPECT_TRUE(given.asked());
  EXPECT_THAT(given.peers, ElementsAre("cudnn", "fa3"));
}

}  // namespace
}  // namespace attune::lab
