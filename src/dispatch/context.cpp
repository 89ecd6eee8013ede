#include "dispatch/context.hpp"

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

namespace {

// The key of all descriptors that ask for the same: what one says without effect, such as the strides of a bias that is
// not there, is at its default.
PlanKey meaning_of(const Problem& problem, int64_t alignment) { return {desc_from(problem), alignment}; }

}  // namespace

std::shared_ptr<const Plan> Context::new_plan(const Problem& problem, int64_t alignment) {
  if (problem.device_kind == DeviceKind::cuda)
    gpu().properties(problem.device_index);  // an absent device has its own status
  const Selection selection = select(problem, *this, forced_kernel_, alignment);
  if (selection.chosen == nullptr) fail(ATTUNE_UNSUPPORTED, "{}: {}", to_string(problem), selection.why);
  return selection.chosen->plan(problem, *this);
}

std::shared_ptr<const Plan> Context::plan_for(const PlanKey& key) {
  if (auto plan = plans_.find(key)) return plan;
  const Problem problem = problem_from(key.desc);
  const PlanKey meaning = meaning_of(problem, key.alignment);
  auto plan = plans_.find(meaning);
  if (plan == nullptr) plan = plans_.keep(meaning, new_plan(problem, key.alignment));
  return plans_.keep(key, plan);
}

std::shared_ptr<const Plan> Context::plan_for_call(const PlanKey& key, void* stream) {
  if (auto plan = plans_.find(key)) return plan;
  const Problem problem = problem_from(key.desc);
  if (problem.device_kind == DeviceKind::cuda && gpu().is_capturing(problem.device_index, stream) &&
      plans_.find(meaning_of(problem, key.alignment)) == nullptr)
    fail(ATTUNE_NOT_PREPARED, "{}: inside a graph capture; call attune_prepare with this descriptor before it",
         to_string(problem));
  return plan_for(key);
}

std::shared_ptr<const Plan> Context::plan_for(const attune_forward_desc& desc) {
  return plan_for(PlanKey{desc, any_alignment});
}

void Context::prepare(const attune_forward_desc& desc) {
  const auto keep = [&](int64_t alignment) {
    const auto plan = plan_for(PlanKey{desc, alignment});
    plans_.pin(meaning_of(plan->problem, alignment), plan);
    return plan;
  };
  const auto plan = keep(any_alignment);
  const int64_t least = bytes_of(plan->problem.dtype);
  if (plan->kernel.pointer_alignment(plan->problem) > least && forced_kernel_.empty()) keep(least);
  if (plan->problem.device_kind == DeviceKind::cuda) merger().prepare(plan->problem.device_index);
}

void Context::forward(const attune_forward_desc& desc, const attune_forward_args& args, void* stream) {
  PlanKey key{desc, any_alignment};
  auto plan = plan_for_call(key, stream);
  check_args(plan->problem, args, plan->workspace_bytes());
  if (plan->problem.empty()) return;

  const auto address = [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); };
  const uintptr_t addresses = address(args.q) | address(args.k) | address(args.v) | address(args.o);
  if (addresses % static_cast<uintptr_t>(plan->kernel.pointer_alignment(plan->problem)) != 0) [[unlikely]] {
    key.alignment = bytes_of(plan->problem.dtype);
    plan = plan_for_call(key, stream);
    check_args(plan->problem, args, plan->workspace_bytes());
  }
  if (plan->problem.device_kind == DeviceKind::cpu)
    check_lengths(plan->problem, args.cu_seqlens_q, args.cu_seqlens_k, args.used_q, args.used_k);
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
    const auto plan = plan_for(desc);
    text += fmt::format("workspace: {} bytes\n{}", plan->workspace_bytes(), plan->describe());
  }
  return text;
}

}  // namespace attune
