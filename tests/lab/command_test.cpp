// The attune command as a user meets it: exit codes, JSON, silence in a pipe.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lab/measure/quiet_cpus.hpp"
#include "lab/report/pages.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/sanitizers.hpp"
#include "tests/support/shell.hpp"

namespace attune::lab {
namespace {

using nlohmann::json;

constexpr const char* problem = "'fwd b1 h2/2 q20 k30 d16 f16'";

test::Outcome attune(const std::string& arguments) { return test::shell(test::build() + "/attune " + arguments); }

// Every line of the output as JSON; a line that is not fails the test.
std::vector<json> objects(const test::Outcome& outcome) {
  std::vector<json> objects;
  std::istringstream lines(outcome.output);
  for (std::string line; std::getline(lines, line);) {
    objects.push_back(json::parse(line, nullptr, false));
    EXPECT_FALSE(objects.back().is_discarded()) << line;
  }
  return objects;
}

TEST(Command, HelpHasExamples) {
  for (const char* command :
       {"", "run", "check", "bench", "doctor", "report", "info", "explain", "guard", "try", "ladder", "evidence"}) {
    const auto outcome = attune(std::string(command) + " --help");
    EXPECT_EQ(outcome.status, 0) << command;
    EXPECT_NE(outcome.output.find("examples:"), std::string::npos) << command;
  }
  EXPECT_EQ(attune("").status, 0);
}

TEST(Command, BadInputIs2) {
  for (const char* arguments : {"chekc",
                                "check --sed 3",
                                "check 'fwd b1'",
                                "check 'fwd b1 h2/2 q8 k8 d16 f8'",
                                "check --set nothing",
                                "check --set /nonexistent.toml",
                                "check --kernel no/such",
                                "check --input odd",
                                "check --oracle delphi",
                                "check --storage round",
                                "explain",
                                "explain 'fwd'",
                                "bench --kernel no/such",
                                "bench --configurations no/such",
                                "bench --peers cudnn --configurations sm90/fwd",
                                "bench --mode warm",
                                "bench --peers cudnn --against old.so",
                                "bench --peers cudnn --plugin p.so",
                                "bench --peers cudnn --backend cpu",
                                "bench --peers cudnn --mode cold",
                                "bench --backend cpu --evidence folder",
                                "bench --backend cpu --threads 2 --plugin p.so",
                                "bench --peers cudnn --threads 2",
                                "bench --backend cpu --any-cpu",
                                "bench --peers cudnn --any-cpu",
                                "bench --mode pdl 'fwd b1 h8/8 q128 k128 d64 f16'",
                                "bench --recorded ratios.jsonl",
                                "bench --peers cudnn --recorded /nonexistent.jsonl",
                                "run 'fwd b1 h3/2 q8 k8 d16 f16'",
                                "check --backend tpu"}) {
    const auto outcome = attune(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments << "\n" << outcome.output;
    EXPECT_FALSE(outcome.output.empty()) << arguments;
  }
}

TEST(Command, NumbersOutOfRangeNameOptionValueAndWhatIsAllowed) {
  const std::string seeds = "a whole number from 0 to 18446744073709551615 is allowed",
                    rounds = "a whole number from 1 to 10000 is allowed",
                    threads = "a list such as 1,2 of different whole numbers from 1 to 4096 is allowed";
  const struct {
    const char *command, *option;
    std::vector<const char*> values;
    std::string allowed;
  } cases[] = {
      {"check", "--seed", {"-1", "", "x", "1.5", "18446744073709551616"}, seeds},
      {"check", "--random", {"-5", "0", "", "1e3"}, "a whole number from 1 to 1099511627776 is allowed"},
      {"check", "--rows", {"-3", "0", "99999999999999999999"}, "a whole number from 1 to 1099511627776 is allowed"},
      {"run", "--rounds", {"0", "-1", "abc", ""}, rounds},
      {"run", "--seed", {"-1"}, seeds},
      {"bench", "--rounds", {"0", "10001"}, rounds},
      {"bench", "--samples", {"0", "-2", "x"}, rounds},
      {"bench", "--budget", {"-1", "nan", "inf", "", "2s"}, "a number of at least 0 is allowed"},
      {"bench", "--seed", {"-1"}, seeds},
      {"bench", "--threads", {"1,,2", "", ",", "1,", "0", "-1", "1,x", "5000", "1,2,1"}, threads},
      {"guard", "--rounds", {"0"}, rounds},
      {"guard", "--samples", {"-1"}, rounds},
      {"guard", "--budget", {"-0.5"}, "a number of at least 0 is allowed"},
      {"guard", "--planted", {"2", "-0.1", "nan"}, "a number from 0 to 1 is allowed"},
      {"evidence check", "--device", {"-1", "x", "2000"}, "a whole number from 0 to 1023 is allowed"},
  };
  for (const auto& c : cases)
    for (const char* value : c.values) {
      const std::string arguments = fmt::format("{} {} '{}'", c.command, c.option, value);
      const auto outcome = attune(arguments);
      EXPECT_EQ(outcome.status, 2) << arguments;
      EXPECT_EQ(outcome.output, fmt::format("attune: {} is '{}'; {}\n", c.option, value, c.allowed)) << arguments;
    }
}

TEST(Command, WhatCannotGoTogetherIsNotIgnored) {
  EXPECT_EQ(attune("check --all --set mission").output,
            "attune: --set does not go with --all, which has all of them\n");
  const auto cold = attune(std::string("bench --backend cpu --mode cold ") + problem);
  EXPECT_EQ(cold.status, 2);
  EXPECT_EQ(cold.output, "attune: --mode is 'cold', which needs a GPU; on a CPU cpu is allowed\n");
}

TEST(Command, OutputThatCannotBeWrittenIs5) {
  const std::string check = std::string("check --backend cpu ") + problem,
                    bench = std::string("bench --backend cpu --rounds 3 --samples 1 --budget 0.1 ") + problem;
  for (const std::string& arguments :
       {std::string("--help"), std::string("check --help"), std::string("info"), std::string("info --json"),
        std::string("explain ") + problem, check, check + " --json", bench + " --json", std::string("selection"),
        std::string("evidence --schema")}) {
    const auto full = test::shell("{ " + test::build() + "/attune " + arguments + " >/dev/full; }");
    EXPECT_EQ(full.status, 5) << arguments;
    EXPECT_TRUE(full.output.ends_with("attune: standard output cannot be written: No space left on device\n"))
        << arguments << "\n"
        << full.output;
    const auto closed = test::shell("{ " + test::build() + "/attune " + arguments + " >&-; }");
    EXPECT_EQ(closed.status, 5) << arguments;
    EXPECT_TRUE(closed.output.ends_with("attune: standard output cannot be written: Bad file descriptor\n"))
        << arguments << "\n"
        << closed.output;
  }
  const test::TemporaryDirectory directory;
  const auto limited = test::shell("ulimit -f 1; { " + test::build() + "/attune info --json >" +
                                   (directory.path() / "info.json").string() + "; }");
  EXPECT_EQ(limited.status, 5);
  EXPECT_EQ(limited.output, "attune: standard output cannot be written: File too large\n");
  const auto said = test::shell("{ { " + test::build() + "/attune check --random 200 --json; echo $? >&2; } | true; }");
  EXPECT_NE(said.output.find("attune: standard output cannot be written: Broken pipe\n5\n"), std::string::npos)
      << said.output;
}

TEST(Command, NobodyNeedsToReadRemarks) {
  const std::string bench = std::string("bench --backend cpu --rounds 3 --samples 1 --budget 0.1 --json ") + problem;
  for (const char* nowhere : {" 2>/dev/full", " 2>&-"}) {
    const auto outcome = test::shell("{ " + test::build() + "/attune " + bench + nowhere + "; }");
    EXPECT_EQ(objects(outcome).size(), 1u) << nowhere;
  }
}

TEST(Command, FilesAreWrittenAsAWholeOrNotAtAll) {
  const test::TemporaryDirectory directory;
  const std::string file = (directory.path() / "selection.md").string();
  EXPECT_EQ(attune("selection --out " + file).status, 0);
  EXPECT_GT(std::filesystem::file_size(file), 1000u);
  const auto full = test::shell("ulimit -f 1; " + test::build() + "/attune selection --out " + file);
  EXPECT_EQ(full.status, 2);
  EXPECT_NE(full.output.find("cannot be written: File too large"), std::string::npos) << full.output;
  EXPECT_GT(std::filesystem::file_size(file), 1000u) << "the file before is still there";
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1) << "and nothing beside it";
  EXPECT_NE(attune("selection --out /dev/stdout").output.find("| fwd"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_symlink("/dev/stdout") || std::filesystem::is_character_file("/dev/stdout"));
}

// Before the first problem is checked, let alone timed.
TEST(Command, AFolderIsTriedBeforeTheMeasurement) {
  const auto saved = attune(std::string("guard --backend cpu --save /proc/baseline.json ") + problem);
  EXPECT_EQ(saved.status, 2);
  EXPECT_TRUE(saved.output.starts_with("attune: --save is '/proc', where no file can be written: ")) << saved.output;
  const auto recorded = attune("evidence check --folder /proc/evidence");
  EXPECT_EQ(recorded.status, 2);
  EXPECT_TRUE(recorded.output.starts_with("attune: --folder is '/proc/evidence', where no file")) << recorded.output;
}

TEST(Command, VerifyingNothingIsAnError) {
  const test::TemporaryDirectory directory;
  for (const std::string& folder : {directory.path().string(), std::string("/nonexistent")}) {
    const auto outcome = attune("evidence verify --folder " + folder);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_TRUE(outcome.output.starts_with("attune: --folder is '" + folder + "', which ")) << outcome.output;
  }
  const std::string folder = directory.path().string();
  const auto empty = attune("evidence verify " + folder);
  EXPECT_EQ(empty.status, 2);
  EXPECT_TRUE(empty.output.starts_with("attune: files is '" + folder + "', which has no record")) << empty.output;
  // With a record that does not hold, and a folder that is none.
  std::ofstream(directory.path() / "a.json") << "{}";
  std::filesystem::create_directory(directory.path() / "b.json");
  const auto damaged = attune("evidence verify " + folder + " /nonexistent.json");
  EXPECT_EQ(damaged.status, 1);
  EXPECT_NE(damaged.output.find("a.json: does not hold"), std::string::npos) << damaged.output;
  EXPECT_NE(damaged.output.find("b.json: cannot be read"), std::string::npos) << damaged.output;
  EXPECT_NE(damaged.output.find("/nonexistent.json: cannot be read"), std::string::npos) << damaged.output;
}

TEST(Command, ErrorsNameWhatIsWrong) {
  EXPECT_NE(attune("check 'fwd b1 h2/2 q8 k8 d16 f8'").output.find("f8"), std::string::npos);
  EXPECT_NE(attune("check --set nothing").output.find("reports7"), std::string::npos);
  EXPECT_NE(attune("check --input odd").output.find("heavy-tailed"), std::string::npos);
}

TEST(Command, UnsupportedIs3) {
  const std::string other_device = "any/fwd";  // a GPU kernel on the CPU
  EXPECT_EQ(attune(std::string("check --backend cpu ") + problem + " --kernel " + other_device).status, 3);
  EXPECT_EQ(attune(std::string("explain --backend cpu ") + problem + " --kernel " + other_device).status, 3);
  EXPECT_EQ(attune(std::string("bench --backend cpu ") + problem + " --kernel " + other_device).status, 3);
}

TEST(Command, CheckWritesTheFieldsItPromises) {
  const auto outcome = attune(std::string("check --backend cpu --json --kernel all --input all --seed 9 ") + problem);
  EXPECT_EQ(outcome.status, 0);
  const auto lines = objects(outcome);
  EXPECT_GE(lines.size(), 8u * 3u);
  for (const json& line : lines) {
    EXPECT_EQ(line.at("problem"), "fwd b1 h2/2 q20 k30 d16 f16");
    EXPECT_TRUE(line.at("kernel").get<std::string>().starts_with("cpu/"));
    EXPECT_TRUE(line.at("why").is_string());
    EXPECT_EQ(line.at("ok"), true);
    for (const char* number : {"rel_rms", "rel_rms_ideal", "rel_rms_bound", "max_ulp", "max_ulp_bound", "lse_err"})
      EXPECT_TRUE(line.at(number).is_number()) << number;
    for (const char* place : {"batch", "head", "row"}) EXPECT_TRUE(line.at("worst").at(place).is_number_integer());
    EXPECT_EQ(line.at("seed"), 9);
    EXPECT_EQ(line.at("rows"), 40);
    EXPECT_EQ(line.at("total_rows"), 40);
  }
}

TEST(Command, CheckOfAnOracleHasNoErrorFigures) {
  const auto lines = objects(attune(std::string("check --backend cpu --json --oracle all ") + problem));
  EXPECT_EQ(lines.size(), 8u);
  for (const json& line : lines) {
    EXPECT_TRUE(line.at("oracle").is_string());
    EXPECT_TRUE(line.at("rel_rms").is_null());
    EXPECT_EQ(line.at("ok"), true);
  }
}

TEST(Command, CheckForPeopleEndsWithTheWorst) {
  const auto outcome = attune("check --backend cpu --random 20 --seed 4 --kernel all");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.output.find("worst error: "), std::string::npos);
  EXPECT_NE(outcome.output.find("checks passed, 0 failed"), std::string::npos) << outcome.output;
  EXPECT_EQ(outcome.output.find('\r'), std::string::npos) << "no progress line in a pipe";
  EXPECT_EQ(outcome.output.find('\033'), std::string::npos);
}

TEST(Command, RandomProblemsAreThoseThatTheNamedKernelComputes) {
  for (const auto& [kernel, word] : {std::pair("cpu/bwd", "bwd "), std::pair("cpu/portable", "fwd ")}) {
    const auto lines = objects(attune(fmt::format("check --backend cpu --random 8 --json --kernel {}", kernel)));
    EXPECT_EQ(lines.size(), 8u);
    for (const json& line : lines) EXPECT_TRUE(line.at("problem").get<std::string>().starts_with(word)) << line;
  }
}

TEST(Command, SetsComeFromFilesToo) {
  const test::TemporaryDirectory directory;
  const std::string path = (directory.path() / "mine.toml").string();
  std::ofstream(path) << "problems = ['fwd b1 h1 q4 k4 d8 f32', 'fwd b1 h1 q4 k4 d8 bf16']\n";
  EXPECT_EQ(objects(attune("check --backend cpu --json --set " + path)).size(), 2u);
}

TEST(Command, BenchWritesTheFieldsItPromises) {
  const auto outcome = attune(std::string("bench --backend cpu --json --rounds 7 --samples 2 --budget 1 "
                                          "--kernel cpu/portable --kernel cpu/unfused ") +
                              problem);
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  const auto lines = objects(outcome);
  ASSERT_EQ(lines.size(), 2u);
  for (const json& line : lines) {
    EXPECT_EQ(line.at("problem"), "fwd b1 h2/2 q20 k30 d16 f16");
    EXPECT_EQ(line.at("ok"), true);
    EXPECT_GT(line.at("us"), 0.0);
    EXPECT_LE(line.at("lo"), line.at("us"));
    EXPECT_GE(line.at("hi"), line.at("us"));
    EXPECT_GT(line.at("gflops"), 0.0);
    EXPECT_TRUE(line.at("ceiling") == "fma" || line.at("ceiling") == "read") << line.at("ceiling");
    EXPECT_GT(line.at("ceiling_value"), 0.0);
    EXPECT_GT(line.at("share"), 0.0);
    EXPECT_LE(line.at("share_lo"), line.at("share"));
    EXPECT_GE(line.at("share_hi"), line.at("share"));
    EXPECT_GE(line.at("threads"), 1);
    EXPECT_EQ(line.at("samples").size(), 7u);
    for (const json& round : line.at("samples")) EXPECT_GE(round.size(), 1u);
    ASSERT_EQ(line.at("probes").size(), 2u) << "few rows may be bound by computing or by reading";
    const json& probe = line.at("probes")[0];
    EXPECT_EQ(probe.at("ceiling"), line.at("ceiling"));
    EXPECT_EQ(probe.at("share"), line.at("share"));
    EXPECT_GT(probe.at("work"), 0.0);
    ASSERT_EQ(probe.at("samples").size(), 7u);
    EXPECT_EQ(probe.at("samples")[0].size(), line.at("samples")[0].size()) << "in the same rounds";
  }
  EXPECT_EQ(lines[0].at("kernel"), "cpu/portable");
  EXPECT_TRUE(lines[1].at("ratio").is_number());
  EXPECT_TRUE(lines[1].at("verdict").is_string());
}

TEST(Command, BenchTimesSeveralNumbersOfThreadsInTheSameRounds) {
  const std::string arguments = "bench --backend cpu --rounds 6 --samples 1 --threads 1,2 'fwd b1 h1/1 q1 k1 d64 f32' ";
  const auto lines = objects(attune(arguments + "--json"));
  ASSERT_EQ(lines.size(), 4u) << "two rows, and a bar for each";
  EXPECT_EQ(lines[0].at("threads"), 1);
  EXPECT_FALSE(lines[0].contains("speedup"));
  EXPECT_EQ(lines[1].at("threads"), 2);
  EXPECT_EQ(lines[1].at("speedup_over_threads"), 1);
  EXPECT_GT(lines[1].at("speedup"), 0.0);
  EXPECT_LE(lines[1].at("speedup_lo"), lines[1].at("speedup"));
  EXPECT_FALSE(lines[1].contains("ratio")) << "more threads are not another contender";
  for (const json& line : {lines[0], lines[1]}) {
    ASSERT_EQ(line.at("probes").size(), 2u) << "computing and reading";
    for (const json& probe : line.at("probes")) {
      const std::string threads = line.at("threads") == 1 ? "by 1 thread" : "by 2 threads";
      EXPECT_TRUE(probe.at("contender").get<std::string>().ends_with(threads)) << probe.at("contender");
      EXPECT_LE(probe.at("share"), line.at("share")) << "the nearest ceiling is the one that bounds";
    }
  }
  EXPECT_EQ(lines[2].at("bar"), "smallest call from C");

  const auto outcome = attune(arguments);
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  const size_t row = outcome.output.find("1/1  fwd b1 h1/1 q1 k1 d64 f32, attune, 2 threads: ");
  const size_t table = outcome.output.find("problem ");
  EXPECT_LT(row, table) << "rows are shown as they come\n" << outcome.output;
  for (const char* part : {"threads", "speed over 1 thread", "x [", "read: ", "2 threads", "smallest call from C"})
    EXPECT_NE(outcome.output.find(part, table), std::string::npos) << part << " in\n" << outcome.output;
}

TEST(Command, BenchChoosesCpusForFewThreads) {
  if (usable_cpu_count() < 2) GTEST_SKIP() << "there is one CPU";
  const std::string arguments = "bench --backend cpu --rounds 6 --samples 1 --threads 1 'fwd b1 h1/1 q1 k1 d64 f32' ";
  const std::string said =
      fmt::format("threads ran on the quickest of {} CPUs, chosen before each round\n", usable_cpu_count());
  const json line = objects(attune(arguments + "--json")).at(0);
  ASSERT_EQ(line.at("cpus").size(), 6u);
  for (const json& round : line.at("cpus")) EXPECT_EQ(round.size(), 1u);
  EXPECT_NE(attune(arguments).output.find(said), std::string::npos);

  EXPECT_FALSE(objects(attune(arguments + "--any-cpu --json")).at(0).contains("cpus"));
  EXPECT_EQ(attune(arguments + "--any-cpu").output.find("threads ran on"), std::string::npos);
  const std::string all =
      fmt::format("bench --backend cpu --rounds 6 --samples 1 --threads {} --json ", usable_cpu_count());
  EXPECT_FALSE(objects(attune(all + "'fwd b1 h1/1 q1 k1 d64 f32'")).at(0).contains("cpus")) << "nothing to choose";
}

TEST(Command, BenchOnACpuTakesItsTime) {
  const auto begin = std::chrono::steady_clock::now();
  const auto outcome = attune("bench --backend cpu 'fwd b1 h1/1 q64 k64 d16 f16'");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_GE(took.count(), 2.0) << "a tile unit that is slow for a second must not decide";
}

TEST(Command, BenchOnAGpuRecordsOtherModesAndTimesEveryConfiguration) {
  ATTUNE_REQUIRE_GPU();
  const test::TemporaryDirectory directory;
  const std::string folder = directory.path().string(), tiny = "'fwd b1 h8/8 q128 k128 d64 f16";
  const auto rows_of = [&](const std::string& mode, const std::string& text) {
    const auto outcome = attune("bench --mode " + mode + " --rounds 6 --samples 2 --budget 1 --evidence " + folder +
                                "/" + mode + " " + text);
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    std::vector<SpeedRow> rows;
    for (const FiledRecord& filed : speed_records_in(folder + "/" + mode)) {
      EXPECT_FALSE(filed.record.at("stamps").empty());
      for (SpeedRow& row : speed_rows(filed.record)) rows.push_back(std::move(row));
    }
    return rows;
  };
  const std::vector<SpeedRow> cold = rows_of("cold", tiny + "'");
  ASSERT_EQ(cold.size(), 1u);
  EXPECT_EQ(cold[0].mode, "cold");
  EXPECT_FALSE(cold[0].subjects.empty());
  EXPECT_TRUE(cold[0].peers.empty());
  const std::vector<SpeedRow> pdl = rows_of("pdl", tiny + " overlap kvready'");
  ASSERT_EQ(pdl.size(), 1u);
  EXPECT_EQ(pdl[0].overlaps, pdl[0].kernel == "sm90/fwd_small");

  const auto lines = objects(
      attune("bench --json --rounds 6 --samples 1 --budget 1 --kernel any/fwd --configurations any/fwd " + tiny + "'"));
  ASSERT_GE(lines.size(), 3u);
  for (size_t i = 1; i < lines.size(); ++i) {
    EXPECT_TRUE(lines[i].at("contender").get<std::string>().starts_with("any/fwd .warps = ")) << lines[i];
    EXPECT_EQ(lines[i].at("ok"), true) << lines[i];
  }
}

TEST(Command, LlamaHandsItsOptionsToItsHost) {
  if (test::under_sanitizers) GTEST_SKIP() << "the engine of Python's hosts is not built under sanitizers";
  const auto help = attune("llama --help");
  EXPECT_EQ(help.status, 0) << help.output;
  EXPECT_NE(help.output.find("python3 -m attune.lab llama"), std::string::npos) << help.output;
  EXPECT_NE(help.output.find("--price"), std::string::npos);
  const auto wrong = attune("llama --layers 0");
  EXPECT_EQ(wrong.status, 2) << wrong.output;
  EXPECT_EQ(attune("llama --python /nowhere/python").status, 3);
}

TEST(Command, RunPrintsATable) {
  const auto outcome = attune(std::string("run --backend cpu --rounds 6 ") + problem);
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  for (const char* word : {"problem", "kernel", "median", "GFLOP/s", "of peak", " % [", "] of ", "error", "unfused",
                           "why", "cpu/", "fma: "})
    EXPECT_NE(outcome.output.find(word), std::string::npos) << word;
  const auto lines = objects(attune(std::string("run --backend cpu --json --rounds 6 ") + problem));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_GT(lines[0].at("unfused_ratio"), 0.0);
  EXPECT_GT(lines[0].at("share"), 0.0);
}

TEST(Command, DoctorMeasuresCeilingsAndSaysWhetherTheMachineIsFit) {
  const auto outcome = attune("doctor --backend cpu --json");
  const auto lines = objects(outcome);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].at("backend"), "cpu");
  EXPECT_EQ(lines[0].at("ceilings").size(), 4u);
  for (const json& ceiling : lines[0].at("ceilings"))
    EXPECT_TRUE(ceiling.contains("absence") || ceiling.at("value") > 0) << ceiling;
  bool fit = true;
  for (const json& finding : lines[0].at("findings")) fit &= finding.at("ok").get<bool>();
  EXPECT_EQ(lines[0].at("fit"), fit);
  EXPECT_EQ(outcome.status, fit ? 0 : 1);
  EXPECT_EQ(attune("doctor --backend tpu").status, 2);
}

TEST(Command, InfoListsKernels) {
  const auto lines = objects(attune("info --json"));
  ASSERT_EQ(lines.size(), 1u);
  bool found = false;
  for (const json& kernel : lines[0].at("kernels")) found |= kernel.at("name") == "cpu/portable";
  EXPECT_TRUE(found);
  EXPECT_TRUE(lines[0].at("version").is_string());
  EXPECT_GE(lines[0].at("threads"), 1);
  EXPECT_NE(attune("info").output.find("cpu/reference"), std::string::npos);
}

TEST(Command, ExplainGivesAReason) {
  const auto lines = objects(attune(std::string("explain --backend cpu --json ") + problem));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(lines[0].at("kernel").get<std::string>().starts_with("cpu/"));
  EXPECT_FALSE(lines[0].at("why").get<std::string>().empty());
  EXPECT_GE(lines[0].at("candidates").size(), 1u);
  EXPECT_TRUE(lines[0].at("configurations").empty());
  EXPECT_NE(attune(std::string("explain ") + problem).output.find("why: "), std::string::npos);
}

TEST(Command, ExplainKnowsGpusThatAreNotHere) {
  const std::string asked = "explain --arch sm_90a 'fwd b1 h8/8 q512 k512 d64 f16 overlap'";
  const auto lines = objects(attune(asked + " --json"));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].at("kernel"), "sm90/fwd_small");
  EXPECT_EQ(lines[0].at("candidates")[0].at("predicted_us"), lines[0].at("configurations")[0].at("predicted_us"));
  EXPECT_GE(lines[0].at("configurations").size(), 2u);
  const std::string text = attune(asked).output;
  for (const char* part : {"overlaps the end of the kernel before it", "us  sm90/fwd\n", "us  .row_groups = "})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  EXPECT_EQ(attune("explain --arch sm_70 'fwd b1 h8/8 q512 k512 d64 f16'").status, 2);
}

}  // namespace
}  // namespace attune::lab
