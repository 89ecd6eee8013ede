// attune evidence: what has been shown, by records that can be verified, and whether it still speaks for the code of
// today.
#include <fmt/format.h>

#include <filesystem>

#include "core/error.hpp"
#include "gpu/runtime.hpp"
#include "jit/paths.hpp"
#include "lab/cmd/commands.hpp"
#include "lab/cmd/options.hpp"
#include "lab/evidence/kernel_checks.hpp"
#include "lab/evidence/schema.hpp"
#include "lab/output.hpp"
#include "lab/progress.hpp"
#include "lab/report/repeatability.hpp"
#include "lab/text.hpp"

namespace attune::lab {
namespace {

constexpr int most_devices = 1023;

struct EvidenceOptions {
  std::string manifest = "kernels/manifest.toml", folder = "evidence";
  std::vector<std::string> files;
  int device_index = 0;
};

std::vector<PromisedKernel> promised(const EvidenceOptions& options, std::string_view arch) {
  std::vector<Promise> promises = read_manifest_file(options.manifest);
  std::erase_if(promises, [&](const Promise& promise) { return promise.arch != arch; });
  jit::Store store(jit::store_options_from_environment());
  ProgressLine progress(static_cast<int64_t>(promises.size()));
  progress.say("compiling");
  return compile_promised(std::move(promises), store, [&](size_t) { progress.step("compiling"); });
}

int verify_files(const EvidenceOptions& options) {
  std::vector<std::string> files;
  const auto add_folder = [&](std::string_view name, const std::string& folder) {
    const std::vector<std::string> records = jit::matches(folder + "/*.json");
    if (records.empty())
      fail(ATTUNE_INVALID_ARGUMENT, "{} is '{}', which {}; a folder with records (*.json) is allowed", name, folder,
           std::filesystem::is_directory(folder) ? "has no record" : "is no folder");
    files.insert(files.end(), records.begin(), records.end());
  };
  if (options.files.empty()) add_folder("--folder", options.folder);
  for (const std::string& file : options.files) {
    if (std::filesystem::is_directory(file))
      add_folder("files", file);
    else
      files.push_back(file);
  }
  int status = exit_ok;
  for (const std::string& file : files) {
    try {
      load_record(file);
      fmt::print("{}: holds\n", file);
    } catch (const Error& error) {
      fmt::print("{}\n", error.what());  // it names the file
      status = exit_failed_check;
    }
  }
  return status;
}

int compare_records(const std::vector<std::string>& files) {
  const auto rows_of = [](const std::string& file) {
    const nlohmann::json record = load_record(file);
    if (record.at("kind") != "speed") fail(ATTUNE_INVALID_ARGUMENT, "{}: is no record of speed", file);
    return speed_rows(record);
  };
  const Repeatability runs = compare_runs(rows_of(files[0]), rows_of(files[1]));
  Table table({{"problem"}, {"over"}, {"first", Table::Align::right}, {"second", Table::Align::right}, {"verdicts"}});
  for (const Repeat& repeat : runs.repeats)
    if (repeat.first != repeat.second)
      table.add({repeat.problem, repeat.peer, fmt::format("{:.3f}", repeat.first_ratio),
                 fmt::format("{:.3f}", repeat.second_ratio),
                 fmt::format("{}, then {}", name_of(repeat.first), name_of(repeat.second))});
  fmt::print("{}{}: {} flipped between faster and slower, {} moved to or from unclear\n", table.text(),
             counted(static_cast<int64_t>(runs.repeats.size()), "comparison"), runs.flips(), runs.moves());
  return runs.holds() ? exit_ok : exit_failed_check;
}

int record_checks(const EvidenceOptions& options) {
  try_folder("--folder", options.folder);
  gpu::Runtime runtime;
  const std::string arch = runtime.properties(options.device_index).arch();
  const std::vector<PromisedKernel> kernels = promised(options, arch);
  nlohmann::json record;
  {
    ProgressLine progress;
    record =
        check_promised_kernels(kernels, options.device_index, [&](const std::string& next) { progress.say(next); });
  }
  size_t failed = 0;
  for (const nlohmann::json& result : record.at("results"))
    if (result.at("passed") == false) {
      ++failed;
      fmt::print("failed: {}, {}\n", result.at("subject").get<std::string>(), result.at("problem").get<std::string>());
    }
  fmt::print("{}: {} kernels, {} checks, {} failed\n", save_record(record, options.folder), record.at("stamps").size(),
             record.at("results").size(), failed);
  return failed == 0 ? exit_ok : exit_failed_check;
}

int print_status(const EvidenceOptions& options) {
  int missing = 0;
  for (const KernelFreshness& entry : check_freshness(promised(options, "sm_90a"), options.folder)) {
    fmt::print("{:8}{}{}{}\n", name_of(entry.freshness), entry.subject, entry.record.empty() ? "" : ", ", entry.record);
    if (entry.freshness != Freshness::fresh) ++missing;
  }
  if (missing > 0)
    fmt::print("{} kernels without fresh check evidence: run `attune evidence check` on a GPU\n", missing);
  return missing == 0 ? exit_ok : exit_failed_check;
}

}  // namespace

void add_evidence(CLI::App& app, int& status) {
  auto options = std::make_shared<EvidenceOptions>();
  auto schema = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("evidence", "records of checks and measurements, and what they speak for");
  command->add_flag("--schema", *schema, "print the JSON Schema of a record");
  command->add_option("--folder", options->folder, "where the records are")->capture_default_str();
  command->add_option("--manifest", options->manifest, "which kernels are promised")->capture_default_str();
  command->require_subcommand(0, 1);
  command->footer(
      "examples:\n"
      "  attune evidence verify          does every record follow from what it holds?\n"
      "  attune evidence compare A B     do two runs of a table come to the same verdicts?\n"
      "  attune evidence check           on a GPU: check every promised kernel, write a record\n"
      "  attune evidence status          has the code of today been checked on a GPU?");
  CLI::App* verify = command->add_subcommand("verify", "recompute every verdict from the figures it rests on");
  verify->add_option("files", options->files, "records or folders of them; --folder if none is given");
  CLI::App* compare = command->add_subcommand("compare", "two records of speed: does a verdict depend on the day?");
  compare->add_option("files", options->files, "two records")->expected(2)->required();
  CLI::App* check = command->add_subcommand("check", "check every promised kernel on this GPU and write a record");
  add_whole_number(*check, "--device", options->device_index, 0, most_devices, "ordinal of the GPU")->default_str("0");
  CLI::App* fresh = command->add_subcommand("status", "which promised kernels have a check of exactly their code");
  for (CLI::App* subcommand : {verify, compare, check, fresh}) subcommand->fallthrough();  // --folder may come last
  verify->callback([options, &status] { status = verify_files(*options); });
  compare->callback([options, &status] { status = compare_records(options->files); });
  check->callback([options, &status] { status = record_checks(*options); });
  fresh->callback([options, &status] { status = print_status(*options); });
  command->callback([command, schema] {
    if (*schema)
      fmt::print("{}\n", evidence_schema().dump(2));
    else if (command->get_subcommands().empty())
      fmt::print("{}", command->help());
  });
}

}  // namespace attune::lab
