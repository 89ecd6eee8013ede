#include "dispatch/process_context.hpp"

#include <memory>

namespace attune {

ProcessContext::ProcessContext(const attune_options& options)
    : kernel_(options.kernel == nullptr ? "" : options.kernel), options_(options) {
  if (options.kernel != nullptr) options_.kernel = kernel_.c_str();
  latest_ = new OfProcess(options_);
}

// An ancestor's Context may be half changed, and its threads are not here to be joined: it is leaked.
ProcessContext::~ProcessContext() {
  OfProcess* latest = latest_.load();
  if (latest->lives_here()) delete latest;
}

Context& ProcessContext::of_child(OfProcess* latest) {
  auto fresh = std::make_unique<OfProcess>(options_);
  fresh->context.threads().leave_openmp();
  while (!latest->lives_here())  // unless another thread of this process was first
    if (latest_.compare_exchange_strong(latest, fresh.get(), std::memory_order_acq_rel))
      return fresh.release()->context;
  return latest->context;
}

}  // namespace attune
