// attune bench --peers: hands the problems over to `python3 -m attune.lab`, the host for attentions that torch calls.
// Two processes never share a round, so that one then measures Attune's kernels too (docs/measuring.md). What it
// measured comes back as lines of JSON.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lab/measure/analysis.hpp"
#include "lab/trial/places.hpp"

// CLI11 is slow to compile: who only passes it on does without.
namespace CLI {
class App;
}

namespace attune::lab {

struct PeerOptions {
  std::vector<std::string> peers;
  std::string lines, recorded, evidence, triton;
  std::string python = "python3";  // the command's --python

  void add_to(CLI::App& command);
  bool asked() const { return !peers.empty(); }
};

// What is asked of the host, as it is started.
struct PeerRun {
  std::vector<std::string> command;
  std::string input;        // one JSON object per line: text, useful FLOPs and accuracy bounds of a problem
  std::string python_path;  // put before PYTHONPATH; empty: the package is installed
};

// `folder`: where this program lies, a build folder or the bin of an installation; the libraries are in the folder that
// ATTUNE_LAB_LIBRARY_DIR names, there, or in ../lib. `lines`: the file that the host writes.
struct PeerContenders {
  std::vector<std::string> kernels;  // of this library
  std::vector<std::string> plugins;
  std::map<std::string, std::vector<std::string>> without;  // plug-ins that take no part at a problem
};
PeerRun peer_run(const PeerOptions& options, const std::vector<std::string>& problems, const PeerContenders& contenders,
                 const Protocol& protocol, const std::string& lines,
                 const std::filesystem::path& folder = own_folder());

// Returns the host's exit status, whose meaning is this command's. Throws ATTUNE_NO_DEVICE where it cannot be started.
int run_peers(const PeerRun& run);

// What a host wrote. A host that was ended early leaves a shorter list, and perhaps half a line, which is dropped.
struct HostLines {
  nlohmann::json head;  // null: not even that
  std::vector<nlohmann::json> problems;
};
HostLines read_host_lines(const std::string& path);

}  // namespace attune::lab
