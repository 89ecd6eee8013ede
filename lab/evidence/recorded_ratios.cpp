#include "lab/evidence/recorded_ratios.hpp"

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/problem.hpp"

namespace attune::lab {
namespace {

using nlohmann::json;

std::string dtype_of(const std::string& recorded) {
  if (recorded == "fp16") return "f16";
  if (recorded == "bf16") return recorded;
  fail(ATTUNE_INVALID_ARGUMENT, "dt is '{}'; it is fp16 or bf16", recorded);
}

bool can_be_measured(const std::string& peer) { return peer.starts_with("cudnn") || peer.starts_with("sdpa"); }

}  // namespace

RecordedRatios RecordedRatios::from_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail(ATTUNE_INVALID_ARGUMENT, "{}: cannot be read", path);
  RecordedRatios recorded;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    try {
      const json row = json::parse(line);
      const Key key{row.at("B"), row.at("H"), row.at("S"), row.at("D"), row.at("causal"), dtype_of(row.at("dt"))};
      for (const auto& [peer, speed] : row.at("speed_vs_cudnn").items())
        if (!can_be_measured(peer)) recorded.ratios_[key][peer] = speed.get<std::array<double, 3>>();
    } catch (const std::exception& error) {
      fail(ATTUNE_INVALID_ARGUMENT, "{}, line {}: not a recorded ratio: {}", path, number, error.what());
    }
  }
  return recorded;
}

std::map<std::string, std::array<double, 3>> RecordedRatios::of(const std::string& problem) const {
  const Problem p = parse_problem(problem);
  if (p.seq_q != p.seq_k || p.heads_q != p.heads_kv || p.dim_qk != p.dim_v) return {};
  const auto found =
      ratios_.find({p.batch, p.heads_q, p.seq_q, p.dim_qk, p.causal != Causal::none, std::string(name_of(p.dtype))});
  return found == ratios_.end() ? std::map<std::string, std::array<double, 3>>{} : found->second;
}

}  // namespace attune::lab
