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
#include "kernels/any/merge.hpp"

namespace attune {

class Context {
 public:
  explicit Context(const attune_options& options);
  // With GPUs on paper: selection works as it would there.
  Context(const attune_options& options, std::unique_ptr<gpu::Runtime> runtime);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // The plan for a descriptor: made once, found by the bytes of the descriptor for as long as it is in use.
  std::shared_ptr<const Plan> plan_for(const attune_forward_desc& desc);

  // Makes every plan that a call with this descriptor may need, and keeps them, so that the call can be captured.
  void prepare(const attune_forward_desc& desc);
  void forward(const attune_forward_desc& desc, const attune_forward_args& args, void* stream);
  void merge(const attune_merge_desc& desc, const attune_merge_args& args, void* stream);
  std::string explain(const attune_forward_desc& desc);

  cpu::Threads& threads() { return threads_; }

  // Made when first asked for: without a GPU problem the driver is not touched.
  gpu::Runtime& gpu() const;

 private:
  std::shared_ptr<const Plan> plan_for(const PlanKey& key);
  // Within a call: fails if a plan has to be made while the stream is being captured.
  std::shared_ptr<const Plan> plan_for_call(const PlanKey& key, void* stream);
  std::shared_ptr<const Plan> new_plan(const Problem& problem, int64_t alignment);
  any::Merger& merger();

  std::string forced_kernel_;
  cpu::Threads threads_;
  mutable std::once_flag gpu_made_, merger_made_;
  mutable std::unique_ptr<gpu::Runtime> gpu_;
  std::unique_ptr<any::Merger> merger_;
  PlanCache plans_;  // goes before what plans refer to
};

}  // namespace attune
