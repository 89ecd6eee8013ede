#include "lab/cmd/peers.hpp"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>

#include "core/error.hpp"
#include "core/operation.hpp"
#include "lab/check/accuracy.hpp"
#include "lab/check/lengths.hpp"
#include "lab/trial/places.hpp"

namespace attune::lab {
namespace {

namespace fs = std::filesystem;

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
  return text;
}

// A file and not a pipe: it cannot fill up, and a host that ends early breaks nothing here.
std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_with(const std::string& text) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
  if (!file || std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() ||
      std::fseek(file.get(), 0, SEEK_SET) != 0)
    fail(ATTUNE_INTERNAL_ERROR, "cannot write a temporary file: {}", std::strerror(errno));
  return file;
}

}  // namespace

void PeerOptions::add_to(CLI::App& command) {
  command.add_option("--peers", peers, "attentions of torch in the same rounds: cudnn,flash,default,fa3,... or all")
      ->delimiter(',')
      ->allow_extra_args(false);
  command.add_option("--evidence", evidence, "on a GPU: a folder for the record of the run (attune evidence)");
  command.add_option("--lines", lines, "with --peers: a file for what the host measured, as JSON lines");
  command.add_option("--recorded", recorded, "with --peers: recorded ratios, to derive FA3's time from cuDNN's");
  command.add_option("--triton", triton, "with --peers: Triton's tutorial 06-fused-attention.py");
}

PeerRun peer_run(const PeerOptions& options, const std::vector<std::string>& problems, const PeerContenders& contenders,
                 const Protocol& protocol, const std::string& lines, const fs::path& folder) {
  if (protocol.mode != "steady" && protocol.mode != Protocol{}.mode)
    fail(ATTUNE_INVALID_ARGUMENT, "--mode {} does not go with --peers; they are measured steady", protocol.mode);
  for (const std::string& text : problems) {
    const Operation* const operation = parse_problem(text).operation;
    if (operation != &forward_operation && operation != &backward_operation)
      fail(ATTUNE_UNSUPPORTED, "'{}': peers are measured on problems that begin with {} or {}", text,
           forward_operation.name, backward_operation.name);
  }
  PeerRun run;
  run.command = {options.python,
                 "-m",
                 "attune.lab",
                 "--engine",
                 library_in(folder, "libattune_lab_engine.so", "--peers"),
                 "--library",
                 library_in(folder, "libattune.so", "--peers"),
                 "--peers",
                 joined(options.peers)};
  const auto add = [&](const char* name, const std::string& value) {
    run.command.emplace_back(name);
    run.command.push_back(value);
  };
  for (const std::string& kernel : contenders.kernels) add("--kernel", kernel);
  for (const std::string& plugin : contenders.plugins) add("--plugin", plugin);
  add("--rounds", std::to_string(protocol.rounds));
  add("--samples", std::to_string(protocol.samples));
  add("--budget", fmt::format("{}", protocol.budget_seconds));
  add("--seed", std::to_string(protocol.seed));
  add("--json", lines);
  if (!options.triton.empty()) add("--triton", options.triton);
  for (const std::string& text : problems) {
    const Problem problem = parse_problem(text);
    const Accuracy& accuracy = frozen_accuracy();
    const nlohmann::json gate = {{"rms_factor", accuracy.rms_bound(problem.dtype, 0)},
                                 {"max_ulp", accuracy.max_ulp(problem.dtype)},
                                 {"lse", accuracy.lse_bound}};
    nlohmann::json line{{"problem", text}, {"flops", useful_flops(problem)}, {"gate", gate}};
    if (const nlohmann::json lengths = to_json(timed_lengths(problem)); !lengths.is_null()) line["lengths"] = lengths;
    if (const auto without = contenders.without.find(text); without != contenders.without.end())
      line["without"] = without->second;
    run.input += line.dump() + "\n";
  }
  run.python_path = package_beside(folder);
  return run;
}

int run_peers(const PeerRun& run) {
  show_package_to_python(run.python_path);
  const auto input = file_with(run.input);
  std::vector<char*> arguments;
  for (const std::string& word : run.command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fileno(input.get()), STDIN_FILENO);
  pid_t child = 0;
  const int error = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) fail(ATTUNE_NO_DEVICE, "'{}' cannot be started: {}", run.command[0], std::strerror(error));
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) fail(ATTUNE_INTERNAL_ERROR, "waiting for '{}': {}", run.command[0], std::strerror(errno));
  if (!WIFEXITED(status))
    fail(ATTUNE_INTERNAL_ERROR, "'{} -m attune.lab' was ended by signal {}", run.command[0], WTERMSIG(status));
  return WEXITSTATUS(status);
}

HostLines read_host_lines(const std::string& path) {
  HostLines lines;
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);) {
    nlohmann::json line = nlohmann::json::parse(text, nullptr, false);
    if (line.is_discarded()) break;
    if (lines.head.is_null())
      lines.head = std::move(line);
    else
      lines.problems.push_back(std::move(line));
  }
  return lines;
}

}  // namespace attune::lab
