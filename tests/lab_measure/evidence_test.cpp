// Evidence records: what is written holds, and what was altered afterwards is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "core/error.hpp"
#include "lab/evidence/record.hpp"
#include "lab/evidence/schema.hpp"
#include "lab/measure/engine.hpp"
#include "simulated.hpp"

namespace attune::lab {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

Result measured(double clock_hz) {
  SimulatedMachine machine(9);
  Protocol protocol;
  protocol.mode = "steady";
  Session session(protocol, machine);
  session.add(std::make_unique<SimulatedContender>("old", machine, Simulated{.clock_hz = clock_hz}));
  session.add_twin(std::make_unique<SimulatedContender>("old", machine, Simulated{.clock_hz = clock_hz}));
  session.add(std::make_unique<SimulatedContender>("new", machine, Simulated{.seconds = 9e-5, .clock_hz = clock_hz}));
  return session.run();
}

json speed_example() {
  return speed_record(
      {{"fwd b1 h8/8 q512 k512 d64 f16", measured(0)}, {"fwd b1 h8/8 q512 k512 d64 f16 causal-br", measured(1.7e9)}},
      {{"card", "simulated"}}, {{"any/fwd f16 d64", "00ff"}}, "2026-11-15T12:00:00Z");
}

json check_example() {
  return check_record({{.problem = "fwd b1 h8/8 q512 k512 d64 f16",
                        .subject = "any/fwd f16 d64",
                        .measured = {{"rms_over_ideal", 1.02}, {"lse", 1e-7}},
                        .bounds = {{"rms_over_ideal", 1.5}}}},
                      {{"card", "simulated"}}, {{"any/fwd f16 d64", "00ff"}}, "2026-11-15T12:00:00Z");
}

// What a careful forger would do after an edit.
json with_new_digest(json record) {
  record.erase("digest");
  const std::string text = record.dump();
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  record["digest"] = fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  return record;
}

TEST(Evidence, WhatIsWrittenHolds) {
  EXPECT_THAT(verify(speed_example()), IsEmpty());
  EXPECT_THAT(verify(check_example()), IsEmpty());
  EXPECT_THAT(verify(json::parse(speed_example().dump())), IsEmpty());
  EXPECT_EQ(with_new_digest(speed_example()), speed_example());
}

TEST(Evidence, AnEditedFileIsRefused) {
  json record = speed_example();
  record["environment"]["card"] = "another";
  EXPECT_THAT(verify(record), Contains(HasSubstr("/digest")));
}

TEST(Evidence, AVerdictThatItsSamplesDoNotGiveIsRefused) {
  json record = speed_example();
  ASSERT_EQ(record["results"][0]["analysis"]["comparisons"][0]["verdict"], "faster");
  record["results"][0]["analysis"]["comparisons"][0]["verdict"] = "same";
  EXPECT_THAT(verify(with_new_digest(record)),
              Contains(AllOf(HasSubstr("/results/0/analysis/comparisons/0/verdict"), HasSubstr("faster"))));
}

TEST(Evidence, AFigureThatItsSamplesDoNotGiveIsRefused) {
  json record = speed_example();
  double& ratio = record["results"][1]["analysis"]["comparisons"][0]["ratio"].get_ref<double&>();
  ratio *= 0.9999;
  EXPECT_THAT(verify(with_new_digest(record)), Contains(HasSubstr("/results/1/analysis/comparisons/0/ratio")));

  record = speed_example();
  record["results"][0]["analysis"]["noise_floor"]["fit"] = false;
  EXPECT_THAT(verify(with_new_digest(record)), Contains(HasSubstr("noise_floor/fit")));
}

TEST(Evidence, SamplesThatDoNotGiveTheVerdictAreRefused) {
  json record = speed_example();
  for (json& round : record["results"][0]["measurement"]["contenders"][2]["seconds"])
    for (json& sample : round) sample = sample.get<double>() * 0.5;
  EXPECT_THAT(verify(with_new_digest(record)), Contains(HasSubstr("its samples say")));
}

TEST(Evidence, DroppedRoundsAndSamplesAreRefused) {
  json record = speed_example();
  record["results"][0]["measurement"]["contenders"][2]["seconds"].erase(0);
  EXPECT_THAT(verify(with_new_digest(record)), Contains(HasSubstr("14 rounds")));
  record = speed_example();
  record["results"][0]["analysis"]["comparisons"].clear();
  EXPECT_THAT(verify(with_new_digest(record)), Contains(HasSubstr("comparisons")));
}

TEST(Evidence, TheShapeIsChecked) {
  json record = speed_example();
  record["version"] = 2;
  EXPECT_THAT(verify(record), Contains(HasSubstr("/version: is 2; only 1 is known")));
  record = speed_example();
  record["claim"] = "twice as fast";
  EXPECT_THAT(verify(record), Contains(HasSubstr("'claim' is not known")));
  record = speed_example();
  record.erase("stamps");
  EXPECT_THAT(verify(record), Contains(HasSubstr("'stamps' is missing")));
  record = speed_example();
  record["results"] = json::array();
  EXPECT_THAT(verify(record), Contains(HasSubstr("has 0 items")));
  record = speed_example();
  record["results"][0]["measurement"]["contenders"][0]["seconds"][3][1] = "fast";
  EXPECT_THAT(verify(record), Contains(HasSubstr("/seconds/3/1: is not of type number")));
  record = speed_example();
  record["kind"] = "check";
  EXPECT_THAT(verify(with_new_digest(record)), Contains(HasSubstr("is no check result")));
  EXPECT_THAT(verify(json("text")), Contains(HasSubstr("not of type object")));
}

TEST(Evidence, ACheckIsJudgedByItsFigures) {
  json record = check_example();
  record["results"][0]["measured"]["rms_over_ideal"] = 1.6;
  EXPECT_THAT(verify(with_new_digest(record)), Contains(HasSubstr("its figures say failed")));
  record = check_example();
  record["results"][0]["bounds"] = json::object();
  EXPECT_THAT(verify(with_new_digest(record)), Contains(HasSubstr("nothing was checked")));
  record = check_example();
  record["results"][0]["subject"] = "sm90/fwd";
  EXPECT_THAT(verify(with_new_digest(record)), Contains(HasSubstr("no stamp for 'sm90/fwd'")));
  CheckResult nan;
  nan.measured = {{"a", std::nan("")}};
  nan.bounds = {{"a", 1}};
  EXPECT_FALSE(nan.passed());
}

TEST(Evidence, WhatRanNeedsItsStamp) {
  SpeedResult result{"fwd b1 h8/8 q512 k512 d64 f16", measured(1.7e9)};
  result.flops = 5e8;
  result.subjects = {"any/fwd f16 d64"};
  result.checks["old"]["rel_rms"] = 1e-3;
  result.recorded["fa3"] = {0.8, 0.79, 0.81};
  const auto record = [&](const Stamps& stamps) {
    return speed_record({result}, {{"card", "simulated"}}, stamps, "2026-11-15T12:00:00Z");
  };
  EXPECT_THAT(verify(record({{"any/fwd f16 d64", "00ff"}})), IsEmpty());
  EXPECT_THAT(verify(record({})), Contains(HasSubstr("no stamp for 'any/fwd f16 d64'")));
}

TEST(Evidence, MayTellTheCpusOfEachRound) {
  Result result = measured(0);
  result.measurement.protocol.quiet_cpus = 2;
  result.measurement.cpus.assign(15, {3, 11});
  const json record = speed_record({{"fwd b1 h8/8 q512 k512 d64 f16", result}}, {{"card", "simulated"}},
                                   {{"any/fwd f16 d64", "00ff"}}, "2026-11-15T12:00:00Z");
  EXPECT_THAT(verify(record), IsEmpty());
  json edited = record;
  edited["results"][0]["measurement"]["cpus"].erase(0);
  EXPECT_THAT(verify(with_new_digest(edited)), Contains(HasSubstr("CPUs for 14 rounds")));
  edited = record;
  edited["results"][0]["measurement"]["cpus"][0][1] = -1;
  EXPECT_THAT(verify(with_new_digest(edited)), Contains(HasSubstr("/cpus/0/1: is -1")));
}

// What is committed is read and compared by people: the largest run stays below a megabyte.
TEST(Evidence, ARecordOfTheWholeGridIsSmall) {
  SimulatedMachine machine(3);
  Protocol protocol;
  protocol.mode = "steady";
  protocol.samples = 8;
  std::vector<SpeedResult> results;
  for (int problem = 0; problem < 39; ++problem) {
    Session session(protocol, machine);
    for (const char* name : {"attune", "cudnn", "flash"}) {
      session.add(std::make_unique<SimulatedContender>(name, machine, Simulated{.clock_hz = 1.623457e9}));
      if (problem == 0 || std::string_view(name) != "attune") continue;
      session.add_twin(std::make_unique<SimulatedContender>(name, machine, Simulated{.clock_hz = 1.623457e9}));
    }
    results.push_back({"fwd b1 h16/16 q16384 k16384 d128 bf16 causal-br", session.run()});
  }
  EXPECT_LT(speed_record(results, {}, {}, "2026-11-15T12:00:00Z").dump().size(), 1000000u);
}

TEST(Evidence, FreshnessComparesStamps) {
  const json record = check_example();
  EXPECT_EQ(freshness(record, "any/fwd f16 d64", "00ff"), Freshness::fresh);
  EXPECT_EQ(freshness(record, "any/fwd f16 d64", "00fe"), Freshness::stale);
  EXPECT_EQ(freshness(record, "sm90/fwd", "00ff"), Freshness::unknown);
}

TEST(Evidence, SavesAndLoadsAndRefusesADamagedFile) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "attune-evidence-test";
  std::filesystem::remove_all(folder);
  const std::string path = save_record(check_example(), folder.string());
  EXPECT_THAT(path, HasSubstr("check-20261115-"));
  EXPECT_EQ(load_record(path), check_example());

  std::string text;
  std::getline(std::ifstream(path), text, '\0');
  for (const std::string& other : {"\xef\xbb\xbf" + text, text + '\0', text + '\0' + "more", '\0' + text}) {
    std::ofstream(path) << other;
    EXPECT_THROW(load_record(path), Error) << "a byte order mark or a NUL";
  }
  text.replace(text.find("1.02"), 4, "1.01");
  std::ofstream(path) << text;
  EXPECT_THROW(load_record(path), Error);
  std::ofstream(path) << text.substr(0, text.size() / 2);
  EXPECT_THROW(load_record(path), Error);
  EXPECT_THROW(load_record((folder / "absent.json").string()), Error);

  json forged = check_example();
  forged["results"][0]["passed"] = false;
  EXPECT_THROW(save_record(with_new_digest(forged), folder.string()), Error);
  std::filesystem::remove_all(folder);
}

TEST(Schema, RefusesWordsItDoesNotKnow) { EXPECT_THROW(schema_violations({{"maxLength", 3}}, "text"), Error); }

}  // namespace
}  // namespace attune::lab
