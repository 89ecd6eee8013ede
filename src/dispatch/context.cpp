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

bool Context::DescBytes::operator==(const DescBytes& other) const {
  return std::memcmp(&desc, &other.desc, sizeof desc) == 0;
}

size_t Context::DescHash::operator()(const DescBytes& key) const { return XXH3_64bits(&key.desc, sizeof key.desc); }

const Plan& Context::plan_for(const attune_forward_desc& desc) {
  const DescBytes key{desc};
  {
    const std::shared_lock lock(plans_mutex_);
    if (const auto found = plans_.find(key); found != plans_.end()) return *found->second;
  }
  const Problem problem = problem_from(desc);
  const Selection selection = select(problem, *this, forced_kernel_);
  if (selection.chosen == nullptr) fail(ATTUNE_UNSUPPORTED, "{}: {}", to_string(problem), selection.why);
  auto plan = selection.chosen->plan(problem, *this);
  const std::unique_lock lock(plans_mutex_);
  // Two threads may have planned the same problem; the first one stays, so references remain valid.
  return *plans_.try_emplace(key, std::move(plan)).first->second;
}

void Context::forward(const attune_forward_desc& desc, const attune_forward_args& args, void* stream) {
  const Plan& plan = plan_for(desc);
  check_args(plan.problem, args, plan.workspace_bytes());
  if (!plan.problem.empty()) plan.run(args, stream);
}

void Context::merge(const attune_merge_desc& desc, const attune_merge_args& args, void* stream) {
  check_merge(desc, args);
  if (desc.device_kind != ATTUNE_CPU) fail(ATTUNE_UNSUPPORTED, "attune_merge: device_kind {} has no merge", desc.device_kind);
  (void)stream;
  cpu::merge(desc, args, threads_);
}

std::string Context::explain(const attune_forward_desc& desc) {
  const Problem problem = problem_from(desc);
  const Selection selection = select(problem, *this, forced_kernel_);
  std::string text = fmt::format("problem: {}\n{}", to_string(problem), to_string(selection));
  if (selection.chosen != nullptr) {
    const Plan& plan = plan_for(desc);
    text += fmt::format("workspace: {} bytes\n{}", plan.workspace_bytes(), plan.describe());
  }
  return text;
}

}  // namespace attune
