// What stands behind an attune_context: threads, GPUs and plans.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "core/problem.hpp"
#include "cpu/threads.hpp"
#include "dispatch/kernel.hpp"
#include "dispatch/plan_cache.hpp"
#include "dispatch/select.hpp"
#include "gpu/runtime.hpp"

namespace attune {

class Context {
 public:
  explicit Context(const attune_options& options);
  // With GPUs on paper: selection works as it would there.
  Context(const attune_options& options, std::unique_ptr<gpu::Runtime> runtime);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // One call. Its plan is made once, and found by the bytes of the descriptor for as long as it is in use.
  void forward(const attune_forward_desc& desc, const Operands& operands, void* stream);
  void backward(const attune_backward_desc& desc, const Operands& operands, void* stream);
  void merge(const attune_merge_desc& desc, const Operands& operands, void* stream);
  void run(const Problem& problem, const Operands& operands, void* stream);

  std::shared_ptr<const Plan> plan_for(const attune_forward_desc& desc);
  std::shared_ptr<const Plan> plan_for(const attune_backward_desc& desc);
  std::shared_ptr<const Plan> plan_for(const Problem& problem);

  // Makes every plan that a call of this problem may need, and keeps them, so that the call can be captured.
  void prepare(const Problem& problem);
  std::string explain(const Problem& problem);

  cpu::Threads& threads() { return threads_; }

  // Made when first asked for: without a GPU problem the driver is not touched.
  gpu::Runtime& gpu() const;

 private:
  // `resolve()` makes the Problem that the key stands for; asked where the key is new.
  template <typename Resolve>
  void run(const PlanKey& key, const Resolve& resolve, const Operands& operands, void* stream);
  template <typename Resolve>
  std::shared_ptr<const Plan> find_or_make(const PlanKey& key, const Resolve& resolve, int64_t alignment);
  // Within a call: fails if a plan has to be made while the stream is being captured.
  template <typename Resolve>
  std::shared_ptr<const Plan> plan_for_call(const PlanKey& key, const Resolve& resolve, int64_t alignment,
                                            void* stream);
  std::shared_ptr<const Plan> plan_for(const Problem& problem, int64_t alignment);
  std::shared_ptr<const Plan> new_plan(const Problem& problem, int64_t alignment);
  // The kernel that this context may use, if problems of this kind are that kernel's business.
  std::string_view forced_for(const Problem& problem) const;

  std::string forced_kernel_;
  cpu::Threads threads_;
  mutable std::once_flag gpu_made_;
  mutable std::unique_ptr<gpu::Runtime> gpu_;
  PlanCache plans_;  // goes before what plans refer to
};

}  // namespace attune
