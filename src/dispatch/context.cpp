#include "dispatch/context.hpp"

#include <xxhash.h>

#include <cstring>

#include "core/error.hpp"
#include "cpu/merge.hpp"

namespace attune {

Context::Context(const attune_options& options)
    : forced_kernel_(options.kernel == nullptr ? "" : options.kernel), threads_(options) {
  if (!forced_kernel_.empty() && find_kernel(forced_kernel_) == nullptr) {
    std::string known;
    for (const Kernel* kernel : kernels()) known += fmt::format("{}{}", known.empty() ? "" : ", ", kernel->name());
    fail(ATTUNE_INVALID_ARGUMENT, "options.kernel is '{}'; known kernels are {}", forced_kernel_, known);
  }
}

Context::Context(const attune_options& options, std::unique_ptr<gpu::Runtime> runtime) : Context(options) {
  std::call_once(gpu_made_, [&] { gpu_ = std::move(runtime); });
}

gpu::Runtime& Context::gpu() const {
  std::call_once(gpu_made_, [&] { gpu_ = std::make_unique<gpu::Runtime>(); });
  return *gpu_;
}

any::Merger& Context::merger() {
  std::call_once(merger_made_, [&] { merger_ = std::make_unique<any::Merger>(gpu()); });
  return *merger_;
}

static_assert(sizeof(attune_forward_desc) % 8 == 0, "PlanKey would have padding");

bool Context::PlanKey::operator==(const PlanKey& other) const { return std::memcmp(this, &other, sizeof *this) == 0; }

size_t Context::PlanHash::operator()(const PlanKey& key) const { return XXH3_64bits(&key, sizeof key); }

const Plan* Context::find_plan(const PlanKey& key) const {
  const std::shared_lock lock(plans_mutex_);
  const auto found = plans_.find(key);
  return found == plans_.end() ? nullptr : found->second.get();
}

const Plan& Context::make_plan(const PlanKey& key) {
  const Problem problem = problem_from(key.desc);
  if (problem.device_kind == DeviceKind::cuda)
    gpu().properties(problem.device_index);  // an absent device has its own status
  const Selection selection = select(problem, *this, forced_kernel_, key.alignment);
  if (selection.chosen == nullptr) fail(ATTUNE_UNSUPPORTED, "{}: {}", to_string(problem), selection.why);
  auto plan = selection.chosen->plan(problem, *this);
  const std::unique_lock lock(plans_mutex_);
  // Two threads may have planned the same problem; the first one stays, so references remain valid.
  return *plans_.try_emplace(key, std::move(plan)).first->second;
}

const Plan& Context::make_plan_for_call(const PlanKey& key, void* stream) {
  const Problem problem = problem_from(key.desc);
  if (problem.device_kind == DeviceKind::cuda && gpu().is_capturing(problem.device_index, stream))
    fail(ATTUNE_NOT_PREPARED, "{}: inside a graph capture; call attune_prepare with this descriptor before it",
         to_string(problem));
  return make_plan(key);
}

const Plan& Context::plan_for(const attune_forward_desc& desc) {
  const PlanKey key{desc, any_alignment};
  const Plan* plan = find_plan(key);
  return plan != nullptr ? *plan : make_plan(key);
}

void Context::prepare(const attune_forward_desc& desc) {
  const Plan& plan = plan_for(desc);
  const int64_t least = bytes_of(plan.problem.dtype);
  if (plan.kernel.pointer_alignment(plan.problem) > least && forced_kernel_.empty()) {
    const PlanKey key{desc, least};
    if (find_plan(key) == nullptr) make_plan(key);
  }
  if (plan.problem.device_kind == DeviceKind::cuda) merger().prepare(plan.problem.device_index);
}

void Context::forward(const attune_forward_desc& desc, const attune_forward_args& args, void* stream) {
  PlanKey key{desc, any_alignment};
  const Plan* plan = find_plan(key);
  if (plan == nullptr) plan = &make_plan_for_call(key, stream);
  check_args(plan->problem, args, plan->workspace_bytes());
  if (plan->problem.empty()) return;

  const auto address = [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); };
  const uintptr_t addresses = address(args.q) | address(args.k) | address(args.v) | address(args.o);
  if (addresses % static_cast<uintptr_t>(plan->kernel.pointer_alignment(plan->problem)) != 0) [[unlikely]] {
    key.alignment = bytes_of(plan->problem.dtype);
    plan = find_plan(key);
    if (plan == nullptr) plan = &make_plan_for_call(key, stream);
    check_args(plan->problem, args, plan->workspace_bytes());
  }
  plan->run(args, stream);
}

void Context::merge(const attune_merge_desc& desc, const attune_merge_args& args, void* stream) {
  check_merge(desc, args);
  if (desc.device_kind == ATTUNE_CUDA)
    merger().run(desc, args, stream);
  else
    cpu::merge(desc, args, threads_);
}

std::string Context::explain(const attune_forward_desc& desc) {
  const Problem problem = problem_from(desc);
  const Selection selection = select(problem, *this, forced_kernel_);
  std::string text = explanation(problem, selection, *this);
  if (selection.chosen != nullptr) {
    const Plan& plan = plan_for(desc);
    text += fmt::format("workspace: {} bytes\n{}", plan.workspace_bytes(), plan.describe());
  }
  return text;
}

}  // namespace attune
