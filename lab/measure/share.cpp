#include "lab/measure/share.hpp"

#include <fmt/format.h>

namespace attune::lab {
namespace {

// Stacked query rows up to which K and V may come from memory more slowly than they are used. Beyond, a problem whose
// bytes would take longer than its operations is a short one, and lies in a cache.
constexpr int64_t few_rows = 32;

// A GPU's tables know this one alone, and do not name it.
bool is_gpus(const Ceiling& ceiling) { return ceiling.name == "matmul"; }

Bound bound_by(const Ceiling& ceiling, double work) {
  const double per_second = ceiling.value * (ceiling.unit.starts_with('T') ? 1e12 : 1e9);
  return {ceiling, per_second > 0 ? work / per_second : 0};
}

}  // namespace

const Ceiling& ProbedCeilings::named(const std::string& name) {
  const auto found = probed_.find(name);
  return found != probed_.end() ? found->second : probed_.emplace(name, probe_(name)).first->second;
}

std::string ProbedCeilings::text() const {
  std::string text;
  for (const auto& [name, ceiling] : probed_)
    text += ceiling.absence.empty()
                ? fmt::format("{}: {:.4g} {}, {}\n", name, ceiling.value, ceiling.unit, ceiling.about)
                : fmt::format("{}: none, {}\n", name, ceiling.absence);
  return text;
}

Bound bound_of(const Problem& problem, std::string_view kernel, ProbedCeilings& ceilings) {
  if (problem.device_kind == DeviceKind::cuda) return bound_by(ceilings.named("matmul"), useful_flops(problem));
  const bool on_tiles =
      problem.dtype != Dtype::f32 && (kernel == "cpu/amx" || (kernel.empty() && ceilings.named("amx").absence.empty()));
  Bound compute = bound_by(ceilings.named(on_tiles ? "amx" : "fma"), useful_flops(problem));
  if (problem.group() * problem.seq_q > few_rows) return compute;
  const Bound read = bound_by(ceilings.named("read"), compulsory_bytes(problem));
  return read.seconds > compute.seconds ? read : compute;
}

std::string share_text(const Bound& bound, double measured_seconds) {
  if (bound.seconds <= 0) return "-";
  const std::string share = fmt::format("{:.0f} %", 100 * bound.share(measured_seconds));
  return is_gpus(bound.ceiling) ? share : fmt::format("{} of {}", share, bound.ceiling.name);
}

nlohmann::json share_json(const Bound& bound, double measured_seconds) {
  const Ceiling& ceiling = bound.ceiling;
  nlohmann::json json = {{"ceiling", ceiling.name}, {"ceiling_unit", ceiling.unit}};
  const bool known = ceiling.absence.empty();
  json["ceiling_value"] = known ? nlohmann::json(ceiling.value) : nullptr;
  json["share"] = known ? nlohmann::json(bound.share(measured_seconds)) : nullptr;
  if (is_gpus(ceiling)) json["peak_gflops"] = ceiling.value * 1e3;
  return json;
}

}  // namespace attune::lab
