#include "lab/measure/share.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "lab/stats/summary.hpp"
#include "lab/text.hpp"

namespace attune::lab {
namespace {

// Stacked query rows up to which K and V may come from memory more slowly than they are used. Beyond, a problem whose
// bytes would take longer than its operations is a short one, and lies in a cache.
constexpr int64_t few_rows = 32;
// Rows whose bf16 is multiplied in pairs by vectors that can (docs/cpu.md): enough to gain by it, and either few enough
// for the row path or enough for the groups of 32 of the block path.
bool in_pairs_by_vectors(int64_t rows) { return (rows >= 3 && rows <= 8) || rows > 16; }

// A GPU's tables know this one alone, and do not name it.
constexpr std::string_view gpu_ceiling = "matmul";

double per_second(double value, std::string_view unit) { return value * (unit.starts_with('T') ? 1e12 : 1e9); }

}  // namespace

std::vector<std::string> cpu_ceilings_of(const Problem& problem, std::string_view kernel, PairUnits machine) {
  if (!problem.operation->operands.has(Operand::k)) return {"read"};  // nothing is multiplied: memory bounds it
  const int64_t rows = problem.group() * problem.seq_q;
  const bool tiles_can = problem.dtype != Dtype::f32 || problem.has(ATTUNE_F32_HIGH);
  const bool on_tiles = tiles_can && (kernel == "cpu/amx" || (kernel.empty() && machine.tiles));
  const bool pairs_can = problem.dtype == Dtype::bf16 && in_pairs_by_vectors(rows);
  const bool in_pairs = pairs_can && (kernel == "cpu/avx512bf16" || (kernel.empty() && machine.vectors));
  std::vector<std::string> ceilings{on_tiles ? "amx" : in_pairs ? "pairs" : "fma"};
  if (rows <= few_rows) ceilings.emplace_back("read");
  return ceilings;
}

double work_for(const Problem& problem, std::string_view ceiling) {
  return ceiling == "read" ? compulsory_bytes(problem) : useful_flops(problem);
}

Share gpu_share(const Ceiling& matmul, double flops, double measured_seconds) {
  Share share;
  share.ceiling = matmul.name;
  share.unit = matmul.unit;
  if (!matmul.absence.empty() || matmul.value <= 0) return share;
  share.value = matmul.value;
  share.estimate = flops / per_second(matmul.value, matmul.unit) / measured_seconds;
  return share;
}

Share share_in_rounds(const Recording& kernel, double kernel_work, const ProbeRecording& probe,
                      const stats::VerdictRule& rule) {
  Share share;
  share.ceiling = probe.ceiling.name;
  share.unit = probe.ceiling.unit;
  share.probe = probe.recording->name;
  share.value = probe.work / stats::median(round_seconds(*probe.recording)) / per_second(1, share.unit);
  share.rounds = round_ratio(*probe.recording, kernel, rule, probe.work, kernel_work);
  share.estimate = share.rounds->estimate;
  return share;
}

std::string ceiling_alarm(const Share& share, const Problem& problem, std::string_view kernel, PairUnits machine) {
  constexpr double most = 1.1;
  constexpr double largest_cache_bytes = 512.0 * (1 << 20);
  if (!share.value) return "";
  const bool on_tiles = share.ceiling == "fma" && (kernel == "cpu/amx" || (kernel.empty() && machine.tiles));
  if (on_tiles || (share.ceiling == "read" && compulsory_bytes(problem) < largest_cache_bytes)) return "";
  // Vectors multiply elements of 16 bits in pairs, for those who use that; the ceiling knows kernels of this library.
  const bool maybe_in_pairs = share.ceiling == "fma" && kernel.empty() && problem.dtype != Dtype::f32;
  const double at_least = share.rounds ? share.rounds->interval.lower : share.estimate;
  if (at_least <= (maybe_in_pairs ? 2 * most : most)) return "";
  return fmt::format("{:.0f} % of the ceiling '{}': either the work is not done, or that is not what bounds it",
                     100 * share.estimate, share.ceiling);
}

std::string share_text(const Share& share) {
  if (!share.value) return "-";
  if (!share.rounds) return fmt::format("{:.0f} %", 100 * share.estimate);
  const stats::Interval& interval = share.rounds->interval;
  return fmt::format("{:.1f} % [{:.1f}, {:.1f}] of {}", 100 * share.estimate, 100 * interval.lower,
                     100 * interval.upper, share.ceiling);
}

nlohmann::json share_json(const Share& share) {
  nlohmann::json json = {{"ceiling", share.ceiling}, {"ceiling_unit", share.unit}};
  json["ceiling_value"] = share.value ? nlohmann::json(*share.value) : nullptr;
  json["share"] = share.value ? nlohmann::json(share.estimate) : nullptr;
  if (share.rounds) {
    json["share_lo"] = share.rounds->interval.lower;
    json["share_hi"] = share.rounds->interval.upper;
    json["share_of_quickest"] = share.rounds->of_quickest;
  }
  if (share.ceiling == gpu_ceiling) json["peak_gflops"] = share.value.value_or(0) * 1e3;
  return json;
}

void CeilingFigures::note(const CeilingName& ceiling, int threads, double value) {
  const auto [place, added] = figures_.try_emplace(Key{ceiling.name, threads}, Figures{ceiling, {}});
  place->second.values.push_back(value);
}

std::string CeilingFigures::text() const {
  std::string text;
  for (const auto& [key, figures] : figures_) {
    const std::vector<double>& values = figures.values;
    const auto [lowest, highest] = std::ranges::minmax(values);
    const std::string range =
        values.size() < 2 ? ""
                          : fmt::format(" (median of {}, {:.4g} to {:.4g})",
                                        counted(static_cast<int64_t>(values.size()), "problem"), lowest, highest);
    text += fmt::format("{}: {:.4g} {}{}, {}, {}\n", key.ceiling, stats::median(values), figures.ceiling.unit, range,
                        figures.ceiling.about, counted(key.threads, "thread"));
  }
  return text;
}

}  // namespace attune::lab
