#include "tests/sm90_emulated/run.hpp"

#include <memory>

#include "core/error.hpp"
#include "core/problem.hpp"
#include "tests/sm90_emulated/machine.hpp"
#include "tests/sm90_emulated/tensor_map.hpp"

namespace attune::emulator {
namespace {

std::vector<Instance>& instances() {
  static std::vector<Instance> list;
  return list;
}

// "attune::device::sm90_fwd" is "sm90_fwd".
std::string_view short_scope(std::string_view scope) { return scope.substr(scope.rfind(':') + 1); }

const Instance& instance_of(const jit::DeviceUnit& unit) {
  for (const Instance& instance : instances())
    if (instance.scope == short_scope(unit.scope) && instance.variant == unit.variant &&
        instance.config == unit.config) {
      if (instance.params_bytes != unit.params_bytes)
        throw std::runtime_error(fmt::format("{}: Params have {} bytes here and {} for the host", unit.name,
                                             instance.params_bytes, unit.params_bytes));
      return instance;
    }
  throw std::runtime_error(fmt::format("not compiled for the emulator; add\nATTUNE_EMULATED({}, ({}), ({}))",
                                       short_scope(unit.scope), unit.variant, unit.config));
}

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

void register_instance(Instance instance) { instances().push_back(std::move(instance)); }

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
  // Whatever is in the workspace, and not more of it than was asked for.
  std::vector<uint64_t> workspace(recipe.workspace_bytes / sizeof(uint64_t) + 64, ~uint64_t{0});
  Operands with_workspace = operands;
  with_workspace.workspace = reinterpret_cast<void*>(
      device::round_up<uintptr_t>(reinterpret_cast<uintptr_t>(workspace.data()), 256));
  std::vector<std::string> notes;
  uint64_t seed = options.seed;
  for (const gpu::Step& step : recipe.steps) {
    const Instance& instance = instance_of(step.unit);
    alignas(64) std::byte params[gpu::largest_params_bytes];
    step.bind(driver, with_workspace, params);
    const Launch shape{step.grid, step.unit.cluster, step.unit.threads, step.unit.smem_bytes, registers_of(step.unit)};
    const std::vector<std::string> more = launch(shape, seed++, [&] { instance.run(params); });
    notes.insert(notes.end(), more.begin(), more.end());
  }
  return notes;
}

std::vector<std::string> configurations(std::string_view kernel, const std::string& problem, int sm_count) {
  return gpu::find_gpu_kernel(kernel).space(parse_problem(problem), device_of(sm_count));
}

std::string verdict(std::string_view kernel, const lab::Case& c, const Options& options) {
  static cpu::Threads threads{attune_options{}};
  static const std::unique_ptr<lab::ReferenceSource> reference = lab::make_cpu_reference(threads);
  EmulatedExecutor executor(kernel, options);
  lab::Checker checker(executor, *reference, threads);
  std::string text;
  try {
    const lab::Outcome outcome = checker.check(c);
    if (outcome.ok() && outcome.unsupported.empty() && outcome.not_applicable.empty()) return "";
    text = outcome.unsupported.empty() ? outcome.judgement.failure + outcome.not_applicable : outcome.unsupported;
    text += fmt::format("; rel_rms {} of {}, max_ulp {}, lse_err {}", outcome.judgement.rel_rms,
                        outcome.judgement.rel_rms_bound, outcome.judgement.max_ulp, outcome.judgement.lse_err);
  } catch (const std::exception& error) {
    text = error.what();
  }
  for (const std::string& line : executor.notes) text += "\nnote: " + line;
  const std::string config = options.config.empty() ? "its own configuration" : "{" + options.config + "}";
  return fmt::format("{} with {}, seed {}, {} SMs, on '{}', input {}, storage {}: {}", kernel, config, options.seed,
                     options.sm_count, c.problem, name_of(c.input), name_of(c.storage), text);
}

std::string verdict(std::string_view kernel, const std::string& problem, const Options& options) {
  return verdict(kernel, lab::Case{problem, "", lab::InputKind::normal, 1, lab::Storage::dense, std::nullopt}, options);
}

}  // namespace attune::emulator
