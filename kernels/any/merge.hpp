// attune_merge on a GPU.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "attune/attune.h"
#include "gpu/runtime.hpp"
#include "kernels/any/merge.cuh"

namespace attune::any {

jit::DeviceUnit merge_unit();
device::any_merge::Params merge_params(const attune_merge_desc& desc, const attune_merge_args& args);

class Merger {
 public:
  explicit Merger(gpu::Runtime& runtime);

  // Compiles and loads; not to be called inside a graph capture.
  void prepare(int device_index);
  // The descriptor has been checked. Throws ATTUNE_NOT_PREPARED inside a graph capture if prepare() has not been
  // called.
  void run(const attune_merge_desc& desc, const attune_merge_args& args, void* stream);

 private:
  gpu::Runtime& runtime_;
  const jit::DeviceUnit unit_;
  std::vector<std::atomic<const gpu::LoadedKernel*>> loaded_;  // per device; nullptr until prepared
};

}  // namespace attune::any
