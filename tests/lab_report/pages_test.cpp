// Pages made of evidence: what is shown, what is left out, and that the committed ones are what the records give.
#include "lab/report/pages.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/error.hpp"
#include "lab/report/svg_chart.hpp"
#include "lab/sets.hpp"
#include "records.hpp"
#include "tests/jit/toy.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/shell.hpp"
#include "today.hpp"

namespace attune::lab {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* llama = "fwd b1 h32/32 q2048 k2048 d128 bf16 causal-br";
constexpr const char* tiny = "fwd b1 h8/8 q128 k128 d64 f16";

std::string contents_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Chart, HasAPathForEverySeriesAndNoneForWhatWasNotMeasured) {
  Chart chart{"a < b", "length", "us", 2, {}};
  chart.panels.push_back({"full",
                          {"128", "512"},
                          {{"Attune", false, {ChartPoint{4, 3.9, 4.1}, ChartPoint{8, 8, 8}}},
                           {"fa3 (recorded)", true, {ChartPoint{7, 7, 7}, std::nullopt}},
                           {"flash", false, {std::nullopt, std::nullopt}}}});
  const std::string svg = svg_of(chart);
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  EXPECT_THAT(svg, HasSubstr("stroke-dasharray"));
  size_t paths = 0;
  for (size_t at = svg.find("<path"); at != std::string::npos; at = svg.find("<path", at + 1)) ++paths;
  EXPECT_EQ(paths, 2u);
  EXPECT_EQ(svg, svg_of(chart));
  EXPECT_NO_THROW(svg_of({"empty", "", "", 1, {{"nothing", {}, {}}}}));
}

TEST(Pages, OnlyWhatIsBetweenTheMarkersChanges) {
  const std::string page = "# Mine\n<!-- attune report: begin -->\nold\n<!-- attune report: end -->\nmine too\n";
  EXPECT_EQ(with_generated(page, "new\n", "a.md"),
            "# Mine\n<!-- attune report: begin -->\nnew\n<!-- attune report: end -->\nmine too\n");
  EXPECT_THAT([] { with_generated("no markers", "", "a.md"); },
              testing::ThrowsMessage<Error>(HasSubstr("a.md: needs")));
}

class FreshPages : public testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_NVRTC(); }

  // Of both problems, as the code of today would run them.
  json record(const std::string& created, double seconds) {
    const RunStamps run = stamps_of_today({llama, tiny});
    std::vector<SpeedResult> results;
    for (const char* problem : {llama, tiny}) {
      results.push_back(steady_result(problem, {{"attune", seconds}, {"cudnn", 1.5 * seconds}}));
      results.back().subjects = run.subjects.at(problem);
      results.back().recorded["fa3"] = {1.2, 1.1, 1.3};
    }
    return speed_record(results, {{"architecture", "sm_90a"}, {"card", "NVIDIA H200"}, {"torch", "2.11"}}, run.stamps,
                        created);
  }

  // Of one problem without peers.
  static json alone(const std::string& problem, const std::string& mode, double seconds, int programmatic_edges = 0) {
    const RunStamps run = stamps_of_today({problem});
    SpeedResult result = steady_result(problem, {{"attune", seconds}});
    result.result.measurement.protocol.mode = mode;
    result.result.measurement.recordings[0].facts["programmatic_edges"] = std::to_string(programmatic_edges);
    result.result.analysis = analyse(result.result.measurement);
    result.subjects = run.subjects.at(problem);
    return speed_record({result}, {{"architecture", "sm_90a"}, {"card", "NVIDIA H200"}, {"driver", "580"}}, run.stamps,
                        "2026-11-17T12:00:00Z");
  }

  void file(const json& given) { save_record(given, (directory.path() / "evidence").string()); }
  std::map<std::string, std::string> pages() {
    return make_pages(test::repo() + "/docs", (directory.path() / "evidence").string());
  }

  const test::TemporaryDirectory directory;
};

TEST_F(FreshPages, ShowTheNewestRowOfAProblem) {
  file(record("2026-11-15T12:00:00Z", 4e-4));
  file(record("2026-11-16T12:00:00Z", 3e-4));
  const auto files = pages();
  EXPECT_THAT(files.at("performance.md"), HasSubstr("300.0 [300.0, 300.0]"));
  EXPECT_THAT(files.at("performance.md"), Not(HasSubstr("400.0 [400.0, 400.0]")));
  EXPECT_THAT(files.at("performance.md"), HasSubstr("| llama7b, bf16 | 1 | 1.250 [1.250, 1.250] | 1.05 | 1.15 |"));
  EXPECT_THAT(files.at("performance.md"), HasSubstr("2026-11-16, NVIDIA H200"));
  EXPECT_THAT(files.at("latency.md"), HasSubstr(tiny));
  EXPECT_THAT(files.at("latency.svg"), HasSubstr("fa3 (recorded)"));
}

TEST_F(FreshPages, LeaveOutWhatSpeaksOfOtherCode) {
  json changed = record("2026-11-15T12:00:00Z", 4e-4);
  std::vector<FiledRecord> records{{"a.json", changed}};
  EXPECT_EQ(fresh_rows(records, {llama}).rows.size(), 1u);
  for (json& stamp : records[0].record["stamps"]) stamp = "another";
  FreshRows fresh = fresh_rows(records, {llama});
  EXPECT_THAT(fresh.rows, IsEmpty());
  EXPECT_THAT(fresh.stale, ElementsAre(llama));

  // The host's side alone changed: the GPU runs what was timed.
  for (json& stamp : changed["stamps"]) {
    const auto text = stamp.get<std::string>();
    stamp = text.substr(0, text.find('-')) + "-another";
  }
  records[0].record = changed;
  EXPECT_EQ(fresh_rows(records, {llama}).rows.size(), 1u);

  records[0].record["results"][0].erase("subjects");
  fresh = fresh_rows(records, {llama});
  EXPECT_THAT(fresh.stale, ElementsAre(llama)) << "nothing is known of what ran";

  // An older record of the right code does not come back once a newer one exists.
  records = {{"a.json", changed}, {"b.json", changed}};
  for (json& stamp : records[1].record["stamps"]) stamp = "another";
  EXPECT_THAT(fresh_rows(records, {llama}).stale, ElementsAre(llama));
}

TEST_F(FreshPages, ShowOtherModesBesideTheRowsWithPeers) {
  file(record("2026-11-15T12:00:00Z", 3e-6));
  EXPECT_THAT(pages().at("latency.md"), Not(HasSubstr("### Cold caches")));
  const std::string overlapping = to_string(parse_problem(std::string(tiny) + " overlap kvready"));
  const auto row = [](const std::string& cells) { return "| " + std::string(tiny) + " | " + cells + " |\n"; };
  const auto section = [&] {
    const std::string page = pages().at("latency.md");
    EXPECT_THAT(page, HasSubstr(tiny + std::string(" | sm90/fwd | 3.00 [3.00, 3.00] |"))) << "the newest with peers";
    return page.substr(page.find("### Cold caches"));
  };
  file(alone(tiny, "cold", 4e-6));
  EXPECT_THAT(section(), HasSubstr(row("- | 4.00 [4.00, 4.00] | -")));
  file(alone(tiny, "steady", 2.5e-6));
  file(alone(overlapping, "pdl", 2e-6, 49));
  EXPECT_THAT(section(), HasSubstr("| problem | us | us, cold L2 | us, overlapping |\n"));
  EXPECT_THAT(section(), HasSubstr(row("2.50 [2.50, 2.50] | 4.00 [4.00, 4.00] | 2.00 [2.00, 2.00]")));
  EXPECT_THAT(section(), HasSubstr("2026-11-17, NVIDIA H200, driver 580\n")) << "records of the section";
  EXPECT_THAT(pages().at("performance.md"), Not(HasSubstr("### Cold caches")));
}

TEST_F(FreshPages, SayWhereNothingOverlapsAndLeaveOutOtherModesOfOtherCode) {
  file(record("2026-11-15T12:00:00Z", 3e-6));
  file(alone(to_string(parse_problem(std::string(tiny) + " overlap kvready")), "pdl", 2e-6, 0));
  json stale = alone(tiny, "cold", 4e-6);
  std::vector<FiledRecord> records{{"a.json", stale}};
  const auto cold = [](const SpeedRow& row) { return row.mode == "cold"; };
  EXPECT_EQ(fresh_rows(records, {tiny}, cold).rows.size(), 1u);
  EXPECT_THAT(fresh_rows(records, {tiny}).rows, IsEmpty()) << "it has no peers";
  for (json& stamp : records[0].record["stamps"]) stamp = "another";
  EXPECT_THAT(fresh_rows(records, {tiny}, cold).stale, ElementsAre(tiny));
  EXPECT_THAT(pages().at("latency.md"), HasSubstr(tiny + std::string(" | - | - | in order |\n")));
}

TEST(Pages, WithoutEvidenceSaySo) {
  const test::TemporaryDirectory directory;
  const auto files = make_pages(test::repo() + "/docs", directory.path().string());
  EXPECT_THAT(files.at("performance.md"), HasSubstr("No measurement speaks for the kernels of today."));
  EXPECT_FALSE(files.contains("performance.svg"));
}

// Fails after a change of a kernel, of the evidence or of the generator: `attune report` brings the pages up to date.
TEST(Pages, AreWhatTheCommittedEvidenceGives) {
  const std::string docs = test::repo() + "/docs", evidence = test::repo() + "/evidence";
  if (!speed_records_in(evidence).empty()) SKIP_WITHOUT_NVRTC();
  const auto files = make_pages(docs, evidence);
  for (const auto& [name, text] : files) EXPECT_EQ(contents_of(std::filesystem::path(docs) / name), text) << name;
  for (const char* name : {"models.md", "models.svg"})
    EXPECT_EQ(std::filesystem::exists(std::filesystem::path(docs) / name), files.contains(name)) << name;
}

}  // namespace
}  // namespace attune::lab
