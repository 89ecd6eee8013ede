// What stands behind an attune_context: threads, devices and the plans made so far.
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

namespace attune {

class Context {
 public:
  explicit Context(const attune_options& options);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // The plan for a descriptor: made once, found by the bytes of the descriptor from then on.
  const Plan& plan_for(const attune_forward_desc& desc);

  void forward(const attune_forward_desc& desc, const attune_forward_args& args, void* stream);
  void merge(const attune_merge_desc& desc, const attune_merge_args& args, void* stream);
  std::string explain(const attune_forward_desc& desc);

  cpu::Threads& threads() { return threads_; }

 private:
  struct DescBytes {
    attune_forward_desc desc;
    bool operator==(const DescBytes& other) const;
  };
  struct DescHash {
    size_t operator()(const DescBytes& key) const;
  };

  std::string forced_kernel_;
  cpu::Threads threads_;
  std::shared_mutex plans_mutex_;
  std::unordered_map<DescBytes, std::unique_ptr<const Plan>, DescHash> plans_;
};

}  // namespace attune
