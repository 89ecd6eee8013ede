// The page of the calls of models: made of one record of the set, with the sentence for the README; nothing without
// one.
#include "lab/report/models_page.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "core/problem.hpp"
#include "lab/model_sets.hpp"
#include "lab/report/ratio_chart.hpp"
#include "records.hpp"
#include "tests/jit/toy.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/shell.hpp"
#include "today.hpp"

namespace attune::lab {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(ModelNames, EveryCallHasOneOfItsOwn) {
  std::set<std::string> names;
  for (const std::string& problem : models().problems) {
    EXPECT_EQ(problem, to_string(parse_problem(problem)));
    EXPECT_TRUE(names.insert(model_of(problem)).second) << problem;
  }
  EXPECT_FALSE(names.contains(""));
  EXPECT_EQ(model_of("fwd b1 h24/24 q4608 k4608 d128 bf16"), "Flux");
  EXPECT_EQ(model_of("fwd b1 h1/1 q1 k1 d8 bf16"), "");
  EXPECT_EQ(model_of("bwd b1 h24/24 q4608 k4608 d128 bf16"), "");
}

TEST(RatioChart, HasAPointWithItsIntervalForEveryRow) {
  const RatioChart chart{"a < b",
                         "times",
                         {{"first", "cudnn", 1.5, {1.4, 1.6}, stats::Outcome::faster},
                          {"second", "flex", 0.5, {0.4, 0.6}, stats::Outcome::slower},
                          {"third", "flash", 1, {0.9, 1.1}, stats::Outcome::unclear}}};
  const std::string svg = svg_of(chart);
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  for (const char* text : {"first", "second", "third", "cudnn", "flex", "flash", "#0b5fa5", "#d55e00", "#7a7a7a"})
    EXPECT_THAT(svg, HasSubstr(text));
  const auto points = [](const std::string& text) {
    size_t count = 0;
    for (size_t at = text.find("<circle"); at != std::string::npos; at = text.find("<circle", at + 1)) ++count;
    return count;
  };
  EXPECT_EQ(points(svg), 3u);
  EXPECT_EQ(svg, svg_of(chart));
  EXPECT_EQ(points(svg_of(RatioChart{"empty", "", {}})), 0u);
}

// Every call of the set, `ratio` times as fast as SDPA's own choice; the first row is slower, the second has no peer.
std::vector<SpeedResult> results_of_models(double ratio) {
  std::vector<SpeedResult> results;
  for (const std::string& problem : models().problems) {
    if (results.size() == 1) {
      results.push_back(steady_result(problem, {{"attune", 1e-4}}));
      continue;
    }
    const double time = results.empty() ? 0.5 : ratio;
    results.push_back(steady_result(problem, {{"attune", 1e-4}, {"default", 1e-4 * time}, {"flash", 3e-4 * time}}));
    results.back().result.measurement.recordings[1].facts["backend"] = "CUDNN_ATTENTION";
    results.back().result.analysis = analyse(results.back().result.measurement);
  }
  return results;
}

TEST(ModelsHeadline, CountsWhatIsFasterAndTakesTheMeanOfWhatWasMeasured) {
  const std::vector<SpeedRow> rows = speed_rows(record_of(results_of_models(2)));
  // 44 rows at 2 and one at a half.
  EXPECT_EQ(models_headline(rows),
            "Of 46 calls of real models, 44 are faster than the fastest thing in torch, geometric mean 1.94 [1.94, "
            "1.94] over the 45 that were measured.");
  std::vector<SpeedResult> all = results_of_models(1.25);
  all[1] = steady_result(all[1].problem, {{"attune", 1e-4}, {"flex", 1.25e-4}});
  all[0] = steady_result(all[0].problem, {{"attune", 1e-4}, {"flex", 1.25e-4}});
  EXPECT_THAT(models_headline(speed_rows(record_of(all))), HasSubstr("46 are faster"));
  EXPECT_THAT(models_headline(speed_rows(record_of(all))), testing::EndsWith("geometric mean 1.25 [1.25, 1.25]."));
  EXPECT_EQ(models_headline({}), "");
}

TEST(ModelsRecord, IsTheNewestWithMoreThanHalfOfTheSet) {
  std::vector<SpeedResult> results = results_of_models(2);
  const std::vector<SpeedResult> half(results.begin(), results.begin() + 23),
      more(results.begin(), results.begin() + 24);
  std::vector<FiledRecord> records{{"a.json", record_of(half)}};
  EXPECT_EQ(record_of_models(records), nullptr);
  records.push_back({"b.json", record_of(more)});
  records.push_back({"c.json", record_of(results)});
  records.push_back({"d.json", record_of(half)});
  EXPECT_EQ(record_of_models(records), &records[2]);
}

class ModelsPage : public testing::Test {
 protected:
  ModelsPage() {
    std::ofstream(directory.path() / "README.md")
        << "# Mine\n<!-- attune report: begin -->\nold\n<!-- attune report: end -->\nmine too\n";
  }

  std::map<std::string, std::string> pages(const std::vector<FiledRecord>& records) const {
    return make_models_page(records, (directory.path() / "docs").string());
  }

  // As the code of today would run them.
  static json record_of_today(std::vector<SpeedResult> results) {
    const RunStamps run = stamps_of_today(models().problems);
    for (SpeedResult& result : results) result.subjects = run.subjects.at(result.problem);
    return speed_record(results, {{"architecture", "sm_90a"}, {"card", "NVIDIA H200"}, {"torch", "2.11"}}, run.stamps,
                        "2026-11-19T12:00:00Z");
  }

  const test::TemporaryDirectory directory;
};

TEST_F(ModelsPage, DoesNotExistWithoutARecord) {
  std::filesystem::create_directory(directory.path() / "docs");
  const auto files = pages({});
  EXPECT_EQ(files.size(), 1u);
  EXPECT_EQ(files.at("../README.md"), "# Mine\n<!-- attune report: begin -->\n<!-- attune report: end -->\nmine too\n");
}

TEST_F(ModelsPage, ShowsEveryCallAndLeavesOutWhatSpeaksOfOtherCode) {
  SKIP_WITHOUT_NVRTC();
  std::filesystem::create_directory(directory.path() / "docs");
  std::vector<SpeedResult> results = results_of_models(2);
  const std::string missing = results.back().problem;
  results.pop_back();
  const json record = record_of_today(results);
  const auto files = pages({{"speed-made-up.json", record}});
  const std::string& page = files.at("models.md");
  const std::string headline =
      "**Of 46 calls of real models, 43 are faster than the fastest thing in torch, geometric mean 1.94 [1.94, 1.94] "
      "over the 44 that were measured.**";
  EXPECT_THAT(page, HasSubstr(headline));
  EXPECT_THAT(files.at("../README.md"), HasSubstr("# Mine\n<!-- attune report: begin -->\n" + headline));
  EXPECT_THAT(files.at("../README.md"), HasSubstr("docs/models.svg"));
  EXPECT_THAT(page,
              HasSubstr("| model | call | kernel | Attune, us | default, us | flash, us | fastest peer | times as "
                        "fast | verdict |\n"));
  EXPECT_THAT(page, HasSubstr("| Flux | b1 h24/24 q4608 k4608 d128 bf16 | sm90/fwd | 100.0 [100.0, 100.0] | 200.0 | "
                              "600.0 | default (cudnn) | 2.000 [2.000, 2.000] | faster |"));
  EXPECT_THAT(page, HasSubstr("| Llama 3 8B | b1 h32/8 q4096 k4096 d128 bf16 causal-br | sm90/fwd | 100.0 [100.0, "
                              "100.0] | 50.00 | 150.0 | default (cudnn) | 0.500 [0.500, 0.500] | slower |"));
  EXPECT_THAT(page, HasSubstr("| - | - | - | - | - |\n")) << "a call that torch cannot express";
  EXPECT_THAT(page, HasSubstr("| models, padding | 3 | 2.000 [2.000, 2.000] | 1.80 | 2.50 |"));
  EXPECT_THAT(page, HasSubstr("Not in the record:\n\n- `" + missing + "`\n"));
  EXPECT_THAT(page, HasSubstr("- `evidence/speed-made-up.json`: 2026-11-19, NVIDIA H200"));
  EXPECT_THAT(files.at("models.svg"), HasSubstr("Flux"));

  json stale = record;
  for (json& stamp : stale["stamps"]) stamp = "another";
  const auto old = pages({{"speed-made-up.json", stale}});
  EXPECT_THAT(old.at("models.md"), HasSubstr("No measurement speaks for the kernels of today."));
  EXPECT_THAT(old.at("models.md"), HasSubstr("Not shown, because the kernels have changed"));
  EXPECT_FALSE(old.contains("models.svg"));
  EXPECT_THAT(old.at("../README.md"), Not(HasSubstr("Of 46")));
}

}  // namespace
}  // namespace attune::lab
