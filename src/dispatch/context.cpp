#include "dispatch/context.hpp"

#include "core/error.hpp"

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

std::string_view Context::forced_for(const Problem& problem) const {
  if (forced_kernel_.empty() || &find_kernel(forced_kernel_)->operation() != problem.operation) return {};
  return forced_kernel_;
}

std::shared_ptr<const Plan> Context::new_plan(const Problem& problem, int64_t alignment) {
  if (problem.device_kind == DeviceKind::cuda)
    gpu().properties(problem.device_index);  // an absent device has its own status
  const Selection selection = select(problem, *this, forced_for(problem), alignment);
  if (selection.chosen == nullptr) fail(ATTUNE_UNSUPPORTED, "{}: {}", to_string(problem), selection.why);
  return selection.candidates.front().offer.plan(*this);
}

std::shared_ptr<const Plan> Context::plan_for(const Problem& problem, int64_t alignment) {
  const PlanKey key(problem, alignment);
  if (auto plan = plans_.find(key)) return plan;
  return plans_.keep(key, new_plan(problem, alignment));
}

template <typename Resolve>
std::shared_ptr<const Plan> Context::find_or_make(const PlanKey& key, const Resolve& resolve, int64_t alignment) {
  if (auto plan = plans_.find(key)) return plan;
  return plans_.keep(key, plan_for(resolve(), alignment));
}

template <typename Resolve>
std::shared_ptr<const Plan> Context::plan_for_call(const PlanKey& key, const Resolve& resolve, int64_t alignment,
                                                   void* stream) {
  if (auto plan = plans_.find(key)) return plan;
  const Problem problem = resolve();
  const auto is_ready = [&] {
    if (plans_.find(PlanKey(problem, alignment)) != nullptr) return true;
    const Kernel* kernel = select(problem, *this, forced_for(problem), alignment).chosen;
    return kernel != nullptr && kernel->is_ready(problem.device_index, *this);
  };
  if (problem.device_kind == DeviceKind::cuda && gpu().is_capturing(problem.device_index, stream) && !is_ready())
    fail(ATTUNE_NOT_PREPARED, "{}: inside a graph capture; make this call, or attune_prepare for it, once before",
         to_string(problem));
  return find_or_make(key, [&] { return problem; }, alignment);
}

std::shared_ptr<const Plan> Context::plan_for(const attune_forward_desc& desc) {
  return find_or_make(PlanKey(desc, any_alignment), [&] { return problem_from(desc); }, any_alignment);
}

std::shared_ptr<const Plan> Context::plan_for(const attune_backward_desc& desc) {
  return find_or_make(PlanKey(desc, any_alignment), [&] { return problem_from(desc); }, any_alignment);
}

std::shared_ptr<const Plan> Context::plan_for(const Problem& problem) { return plan_for(problem, any_alignment); }

void Context::prepare(const Problem& problem) {
  const auto keep = [&](int64_t alignment) {
    const auto plan = plan_for(problem, alignment);
    plans_.pin(PlanKey(problem, alignment), plan);
    return plan;
  };
  const auto plan = keep(any_alignment);
  const int64_t least = bytes_of(problem.dtype);
  if (plan->kernel.pointer_alignment(problem) > least && forced_for(problem).empty()) keep(least);
  for (const Kernel* kernel : kernels())
    if (kernel->device_kind() == problem.device_kind) kernel->make_ready(problem.device_index, *this);
}

namespace {

// Of the operands that a kernel may want aligned to more than an element.
bool are_aligned(const Problem& problem, const Operands& operands, int64_t alignment) {
  uintptr_t addresses = 0;
  for (const OperandRow& row : operand_rows())
    if (row.form == Form::rows && row.element == Element::of_problem && problem.operation->operands.has(row.operand))
      addresses |= reinterpret_cast<uintptr_t>(operands.in(row.operand));
  return addresses % static_cast<uintptr_t>(alignment) == 0;
}

}  // namespace

template <typename Resolve>
void Context::run(const PlanKey& key, const Resolve& resolve, const Operands& operands, void* stream) {
  auto plan = plan_for_call(key, resolve, any_alignment, stream);
  const Problem& problem = plan->problem;
  check_operands(problem, operands, plan->workspace_bytes());
  if (problem.device_kind == DeviceKind::cpu) check_lengths(problem, operands);
  if (nothing_to_write(problem)) return;
  if (!are_aligned(problem, operands, plan->kernel.pointer_alignment(problem))) [[unlikely]] {
    const int64_t least = bytes_of(problem.dtype);
    plan = plan_for_call(key.with_alignment(least), resolve, least, stream);
    check_operands(plan->problem, operands, plan->workspace_bytes());
  }
  plan->run(operands, stream);
}

void Context::forward(const attune_forward_desc& desc, const Operands& operands, void* stream) {
  run(PlanKey(desc, any_alignment), [&] { return problem_from(desc); }, operands, stream);
}

void Context::backward(const attune_backward_desc& desc, const Operands& operands, void* stream) {
  run(PlanKey(desc, any_alignment), [&] { return problem_from(desc); }, operands, stream);
}

void Context::merge(const attune_merge_desc& desc, const Operands& operands, void* stream) {
  const bool with_lse = operands.in(Operand::lse) != nullptr;
  run(PlanKey(desc, with_lse, any_alignment), [&] { return problem_from(desc, with_lse); }, operands, stream);
}

void Context::run(const Problem& problem, const Operands& operands, void* stream) {
  run(PlanKey(problem, any_alignment), [&] { return problem; }, operands, stream);
}

std::string Context::explain(const Problem& problem) {
  const Selection selection = select(problem, *this, forced_for(problem));
  std::string text = explanation(problem, selection, *this);
  if (selection.chosen != nullptr) {
    const auto plan = plan_for(problem);
    text += fmt::format("workspace: {} bytes\n{}", plan->workspace_bytes(), plan->describe());
  }
  return text;
}

}  // namespace attune
