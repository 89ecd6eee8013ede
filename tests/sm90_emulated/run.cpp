#include "tests/sm90_emulated/run.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <span>

#include "core/error.hpp"
#include "core/problem.hpp"
#include "tests/sm90_emulated/instances.hpp"
#include "tests/sm90_emulated/machine.hpp"
#include "tests/sm90_emulated/tensor_map.hpp"

namespace attune::emulator {
namespace {

// Registers per thread at the start: as many as the roles want together, where they are known.
unsigned registers_of(const jit::DeviceUnit& unit) {
  constexpr unsigned register_file = 65536, largest = 248;
  const unsigned most = std::min(register_file / unit.threads / 8 * 8, largest);
  if (unit.role_registers == 0) return most;
  return std::min(most, device::round_up(device::ceil_div(unit.role_registers, unit.threads), 8u));
}

// Runs one kernel for the lab's checker.
class EmulatedExecutor final : public lab::Executor {
 public:
  EmulatedExecutor(std::string_view kernel, Options options) : kernel_(kernel), options_(std::move(options)) {}

  DeviceKind device_kind() const override { return DeviceKind::cuda; }
  lab::Choice choose(std::string_view, const Problem& problem) override {
    const std::string refusal = gpu::find_gpu_kernel(kernel_).refusal_on(problem, device_of(options_.sm_count));
    if (!refusal.empty()) return {"", fmt::format("{}: {}", kernel_, refusal)};
    return {kernel_, "emulated"};
  }
  std::vector<std::string> settings() const override { return {"emulated"}; }
  void run(std::string_view, lab::Tensors& tensors, std::string_view) override {
    notes = emulator::run(kernel_, tensors.problem, tensors.operands(), options_);
  }

  std::vector<std::string> notes;

 private:
  std::string kernel_;
  Options options_;
};

}  // namespace

gpu::DeviceProperties device_of(int sm_count) {
  gpu::DeviceProperties device = gpu::typical_device("sm_90a");
  device.sm_count = sm_count;
  return device;
}

std::vector<std::string> run(std::string_view kernel, const Problem& problem, const Operands& operands,
                             const Options& options) {
  const gpu::DeviceProperties device = device_of(options.sm_count);
  const gpu::GpuKernel& host = gpu::find_gpu_kernel(kernel);
  const std::string config = options.config.empty() ? host.space(problem, device).at(0) : options.config;
  const gpu::Recipe recipe = host.recipe(problem, device, config);
  static const gpu::Driver driver = driver_for_maps();
  struct alignas(256) Line {
    std::array<uint64_t, 32> words;
  };
  std::vector<Line> workspace(recipe.workspace_bytes / sizeof(Line) + 16);
  for (Line& line : workspace) line.words.fill(~uint64_t{0});
  Operands with_workspace = operands;
  with_workspace.workspace = workspace.data();
  with_workspace.workspace_bytes = recipe.workspace_bytes;
  std::vector<std::string> notes;
  uint64_t seed = options.seed;
  for (const gpu::Step& step : recipe.steps) {
    jit::DeviceUnit unit = step.unit;
    if (!options.scope.empty()) unit.scope = options.scope;
    const Instance& instance = find_instance(unit);
    alignas(64) std::byte params[gpu::largest_params_bytes];
    step.bind(driver, with_workspace, params);
    const Launch shape{step.grid, step.unit.cluster, step.unit.threads, step.unit.smem_bytes, registers_of(step.unit)};
    const std::vector<std::string> more = launch(shape, seed++, [&] { instance.run(params); });
    notes.insert(notes.end(), more.begin(), more.end());
  }
  const auto spare = std::as_bytes(std::span(workspace)).subspan(recipe.workspace_bytes);
  if (std::ranges::any_of(spare, [](std::byte b) { return b != std::byte{0xff}; }))
    throw std::runtime_error(fmt::format("{}: wrote past the {} bytes of workspace", kernel, recipe.workspace_bytes));
  return notes;
}

std::vector<Options> every_configuration(std::string_view kernel, const std::string& problem,
                                         std::initializer_list<uint64_t> seeds, int sm_count) {
  std::vector<Options> list;
  for (const std::string& config : gpu::find_gpu_kernel(kernel).space(parse_problem(problem), device_of(sm_count)))
    for (const uint64_t seed : seeds) list.push_back({config, seed, sm_count});
  return list;
}

std::vector<Options> compiled_configurations(std::string_view kernel, const std::string& problem,
                                             std::initializer_list<uint64_t> seeds, int sm_count) {
  std::vector<Options> list = every_configuration(kernel, problem, seeds, sm_count);
  std::erase_if(list, [&](const Options& options) {
    const gpu::Recipe recipe =
        gpu::find_gpu_kernel(kernel).recipe(parse_problem(problem), device_of(sm_count), options.config);
    return !std::ranges::all_of(recipe.steps, [](const gpu::Step& step) { return has_instance(step.unit); });
  });
  return list;
}

std::string verdict(std::string_view kernel, const lab::Case& c, std::span<const Options> runs) {
  if (runs.empty()) return fmt::format("{} has no configuration for '{}'", kernel, c.problem);
  static cpu::Threads threads{attune_options{}};
  static const std::unique_ptr<lab::ReferenceSource> reference = lab::make_cpu_reference(threads);
  std::deque<EmulatedExecutor> executors;
  std::vector<lab::Contestant> contestants;
  for (const Options& options : runs)
    contestants.push_back({&executors.emplace_back(kernel, options), std::string(kernel)});
  lab::Checker checker(executors.front(), *reference, threads);
  std::string text;
  const std::vector<lab::Outcome> outcomes = checker.check(c, contestants);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const lab::Outcome& outcome = outcomes[i];
    if (outcome.ok() && outcome.unsupported.empty() && outcome.not_applicable.empty()) continue;
    const Options& options = runs[i];
    const std::string config = options.config.empty() ? "its own configuration" : "{" + options.config + "}";
    text += fmt::format("{} with {}, seed {}, {} SMs, on '{}', input {}, storage {}: {}", kernel, config, options.seed,
                        options.sm_count, c.problem, name_of(c.input), name_of(c.storage),
                        outcome.unsupported + outcome.not_applicable + outcome.judgement.failure);
    if (outcome.judgement.rel_rms != 0)
      text += fmt::format("; rel_rms {} of {}, max_ulp {}, lse_err {}", outcome.judgement.rel_rms,
                          outcome.judgement.rel_rms_bound, outcome.judgement.max_ulp, outcome.judgement.lse_err);
    for (const std::string& line : executors[i].notes) text += "\n  note: " + line;
    text += "\n";
  }
  return text;
}

std::string verdict(std::string_view kernel, const std::string& problem, std::span<const Options> runs) {
  return verdict(kernel, lab::Case{problem, "", lab::InputKind::normal, 1, lab::Storage::dense, std::nullopt}, runs);
}

std::string verdict(std::string_view kernel, const std::string& problem, const Options& options) {
  return verdict(kernel, problem, std::span(&options, 1));
}

}  // namespace attune::emulator
