#include "lab/evidence/kernel_checks.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "core/error.hpp"
#include "gpu/kernel.hpp"
#include "gpu/runtime.hpp"
#include "lab/check/checker.hpp"
#include "lab/check/cuda_backend.hpp"
#include "lab/check/method.hpp"
#include "lab/evidence/stamp.hpp"
#include "lab/measure/environment.hpp"

namespace attune::lab {
namespace {

constexpr std::string_view measured_arch = "sm_90a";

constexpr InputKind hostile[] = {InputKind::heavy_tailed, InputKind::far_negative, InputKind::rising_max};

Problem on_gpu(const std::string& text) {
  Problem problem = parse_problem(text);
  problem.device_kind = DeviceKind::cuda;
  return problem;
}

// Whether the kernel, asked for this problem with this configuration, runs this unit.
bool is_served_by(const gpu::GpuKernel& kernel, const Promise& promise, const std::string& text) {
  const gpu::DeviceProperties& device = gpu::typical_device(promise.arch);
  const Problem problem = on_gpu(text);
  if (!kernel.refusal_on(problem, device).empty()) return false;
  const std::vector<std::string> configs = kernel.space(problem, device);
  if (std::ranges::find(configs, promise.config) == configs.end()) return false;
  const gpu::Recipe recipe = kernel.recipe(problem, device, promise.config);
  return std::ranges::any_of(recipe.steps,
                             [&](const gpu::Step& step) { return source_of(step.unit) == source_of(promise.unit); });
}

}  // namespace

std::vector<std::string> problems_for(const Promise& promise) {
  const gpu::GpuKernel& kernel = gpu::find_gpu_kernel(promise.kernel);
  const Problem like = parse_problem(promise.problem);
  std::vector<std::string> problems = check_method_of(like).problems_like(like);
  std::erase_if(problems, [&](const std::string& text) { return !is_served_by(kernel, promise, text); });
  return problems;
}

nlohmann::json check_promised_kernels(const std::vector<PromisedKernel>& kernels, int device_index,
                                      const std::function<void(const std::string&)>& progress) {
  gpu::Runtime runtime;
  const gpu::DeviceProperties& device = runtime.properties(device_index);
  Facts environment = host_facts();
  environment["gpu"] = device.name;
  environment["cuda_driver"] = std::to_string(gpu::driver().version);

  // By case, not by kernel: inputs, reference and Ideal take longer than all the kernels they judge.
  std::map<std::pair<std::string, InputKind>, std::vector<const PromisedKernel*>> judged_by;
  Stamps stamps;
  for (const PromisedKernel& kernel : kernels) {
    const Promise& promise = kernel.promise;
    if (promise.arch != device.arch() || promise.problem.empty() || !gpu::find_gpu_kernel(promise.kernel).selectable())
      continue;
    const std::string subject = subject_of(promise.unit, promise.arch);
    if (!stamps.emplace(subject, stamp_of(*kernel.built, promise.kernel)).second) continue;
    const std::vector<std::string> problems = problems_for(promise);
    if (problems.empty()) fail(ATTUNE_INTERNAL_ERROR, "no problem to check {} with", subject);
    for (const std::string& problem : problems) judged_by[{problem, InputKind::normal}].push_back(&kernel);
    for (const InputKind input : hostile) judged_by[{problems.front(), input}].push_back(&kernel);
  }

  std::vector<CheckResult> results;
  cpu::Threads threads{attune_options{}};
  const auto truth = make_cuda_reference(device_index);
  std::map<std::string, std::unique_ptr<Executor>> executors;  // by configuration
  for (const auto& [which, promised] : judged_by) {
    const auto& [problem, input] = which;
    progress(problem);
    std::vector<Contestant> contestants;
    for (const PromisedKernel* kernel : promised) {
      auto& executor = executors[kernel->promise.config];
      if (!executor) executor = make_cuda_executor(device_index, kernel->promise.config);
      contestants.push_back({executor.get(), kernel->promise.kernel});
    }
    Checker checker(*contestants.front().executor, *truth, threads, cuda_rows);
    const std::vector<Outcome> outcomes =
        checker.check({problem, "", input, 1, Storage::dense, std::nullopt}, contestants);
    for (size_t i = 0; i < outcomes.size(); ++i) {
      const Outcome& outcome = outcomes[i];
      if (!outcome.unsupported.empty()) fail(ATTUNE_INTERNAL_ERROR, "{}: {}", problem, outcome.unsupported);
      const Judgement& j = outcome.judgement;
      results.push_back({fmt::format("{} ({})", problem, name_of(input)),
                         subject_of(promised[i]->promise.unit, promised[i]->promise.arch),
                         {{"rel_rms", j.rel_rms},
                          {"max_ulp", j.max_ulp},
                          {"lse_err", j.lse_err},
                          {"broken_rules", outcome.ok() ? 0.0 : 1.0}},
                         {{"rel_rms", j.rel_rms_bound},
                          {"max_ulp", j.max_ulp_bound},
                          {"lse_err", j.lse_bound},
                          {"broken_rules", 0.0}}});
    }
  }
  return check_record(results, environment, stamps, utc_now());
}

std::vector<KernelFreshness> check_freshness(const std::vector<PromisedKernel>& kernels, const std::string& folder) {
  std::map<std::string, nlohmann::json> records;  // by file name, which begins with kind and day
  std::error_code none;
  for (const auto& item : std::filesystem::directory_iterator(folder, none))
    if (item.path().extension() == ".json")
      if (nlohmann::json record = load_record(item.path()); record.at("kind") == "check")
        records[item.path().filename()] = std::move(record);

  // A subject with a failed check has no evidence, whatever its stamp.
  const auto passed = [](const nlohmann::json& record, const std::string& subject) {
    return std::ranges::all_of(record.at("results"), [&](const nlohmann::json& result) {
      return result.at("subject") != subject || result.at("passed") == true;
    });
  };
  std::vector<KernelFreshness> list;
  std::set<std::string> seen;
  for (const PromisedKernel& kernel : kernels) {
    const Promise& promise = kernel.promise;
    if (promise.arch != measured_arch || promise.problem.empty() || !gpu::find_gpu_kernel(promise.kernel).selectable())
      continue;
    KernelFreshness entry{subject_of(promise.unit, promise.arch), Freshness::unknown, ""};
    if (!seen.insert(entry.subject).second) continue;
    const std::string stamp = stamp_of(*kernel.built, promise.kernel);
    for (const auto& [file, record] : records) {
      const Freshness here = freshness(record, entry.subject, stamp);
      if (here == Freshness::unknown || entry.freshness == Freshness::fresh) continue;
      entry = {entry.subject, here == Freshness::fresh && !passed(record, entry.subject) ? Freshness::stale : here,
               file};
    }
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace attune::lab
