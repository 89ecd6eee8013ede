// What stands behind an attune_context: threads, GPUs and the plans made so far.
#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include "core/problem.hpp"
#include "cpu/threads.hpp"
#include "dispatch/kernel.hpp"
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

  // The plan for a descriptor: made once, found by the bytes of the descriptor from then on.
  const Plan& plan_for(const attune_forward_desc& desc);

  // Makes every plan that a call with this descriptor may need, so that it can be captured.
  void prepare(const attune_forward_desc& desc);
  void forward(const attune_forward_desc& desc, const attune_forward_args& args, void* stream);
  void merge(const attune_merge_desc& desc, const attune_merge_args& args, void* stream);
  std::string explain(const attune_forward_desc& desc);

  cpu::Threads& threads() { return threads_; }

  // Made when first asked for: without a GPU problem the driver is not touched.
  gpu::Runtime& gpu() const;

 private:
  struct PlanKey {
    attune_forward_desc desc;
    int64_t alignment;  // that the plan may count on
    bool operator==(const PlanKey& other) const;
  };
  struct PlanHash {
    size_t operator()(const PlanKey& key) const;
  };

  const Plan* find_plan(const PlanKey& key) const;
  const Plan& make_plan(const PlanKey& key);
  // As make_plan, unless the stream is being captured.
  const Plan& make_plan_for_call(const PlanKey& key, void* stream);
  any::Merger& merger();

  std::string forced_kernel_;
  cpu::Threads threads_;
  mutable std::once_flag gpu_made_, merger_made_;
  mutable std::unique_ptr<gpu::Runtime> gpu_;
  std::unique_ptr<any::Merger> merger_;
  mutable std::shared_mutex plans_mutex_;
  std::unordered_map<PlanKey, std::unique_ptr<const Plan>, PlanHash> plans_;  // goes before what plans refer to
};

}  // namespace attune
