#include "lab/evidence/recorded_ratios.hpp"

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/operation.hpp"
#include "core/problem.hpp"

namespace attune::lab {
namespace {

using nlohmann::json;

std::string dtype_of(const std::string& recorded) {
  if (recorded == "fp16") return "f16";
  if (recorded == "bf16") return recorded;
  fail(ATTUNE_INVALID_ARGUMENT, "dt is '{}'; it is fp16 or bf16", recorded);
}

constexpr std::string_view sdpa = "sdpa_";

// Records of gradients stand beside others, of grouped heads, of pages, and of what has no ratio to cuDNN.
bool is_about_something_else(const json& row, bool backward) {
  if (backward) return !row.contains("speed_vs_cudnn") || row.value("Hk", row.at("H")) != row.at("H");
  return row.value("tag", "") == "paged";
}

}  // namespace

RecordedRatios RecordedRatios::from_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail(ATTUNE_INVALID_ARGUMENT, "{}: cannot be read", path);
  RecordedRatios recorded;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    try {
      const json row = json::parse(line);
      const bool backward = row.value("tag", "") == backward_operation.name;
      if (is_about_something_else(row, backward)) continue;
      const std::string_view operation = backward ? backward_operation.name : forward_operation.name;
      const std::string dtype = dtype_of(backward ? row.value("dt", "bf16") : row.at("dt").get<std::string>());
      const Key key{std::string(operation), row.at("B"), row.at("H"), row.at("S"), row.at("D"),
                    row.at("causal"),       dtype};
      for (const auto& [peer, speed] : row.at("speed_vs_cudnn").items())
        if (peer.starts_with(sdpa))
          recorded.measurable_[key][peer.substr(sdpa.size())] = speed;
        else if (backward && peer == "flash")
          recorded.measurable_[key][peer] = speed;
        else if (!peer.starts_with("cudnn"))
          recorded.ratios_[key][peer] = speed;
    } catch (const std::exception& error) {
      fail(ATTUNE_INVALID_ARGUMENT, "{}, line {}: not a recorded ratio: {}", path, number, error.what());
    }
  }
  return recorded;
}

RecordedRatios::Speeds RecordedRatios::found(const Ratios& ratios, const std::string& problem) {
  const Problem p = parse_problem(problem);
  if (p.seq_q != p.seq_k || p.heads_q != p.heads_kv || p.dim_qk != p.dim_v) return {};
  const auto row = ratios.find({std::string(p.operation->name), p.batch, p.heads_q, p.seq_q, p.dim_qk,
                                p.causal != Causal::none, std::string(name_of(p.dtype))});
  return row == ratios.end() ? Speeds{} : row->second;
}

}  // namespace attune::lab
