// One cuLaunchKernelEx.
#pragma once

#include <array>

#include "gpu/driver.hpp"
#include "jit/unit.hpp"

namespace attune::gpu {

// Everything about a launch that does not change from call to call.
class Launch {
 public:
  // `programmatic`: may start while the kernel before it in the stream still runs (the kernel waits by griddepcontrol).
  Launch(CUfunction function, jit::Dim3 grid, const jit::DeviceUnit& unit, bool programmatic)
      : function_(function), grid_(grid), threads_(unit.threads), smem_bytes_(unit.smem_bytes) {
    if (unit.cluster != jit::Dim3{}) {
      attributes_[count_].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
      attributes_[count_++].value.clusterDim = {unit.cluster.x, unit.cluster.y, unit.cluster.z};
    }
    if (programmatic) {
      attributes_[count_].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
      attributes_[count_++].value.programmaticStreamSerializationAllowed = 1;
    }
  }

  // `params`: the one parameter struct; the driver copies it before this returns.
  void operator()(const Driver& driver, void* params, CUstream stream) const {
    // The driver only reads the attributes.
    const CUlaunchConfig config{grid_.x,     grid_.y, grid_.z,
                                threads_,    1,       1,
                                smem_bytes_, stream,  const_cast<CUlaunchAttribute*>(attributes_.data()),
                                count_};
    void* all_params[] = {params};
    driver.check(driver.cuLaunchKernelEx(&config, function_, all_params, nullptr), "cuLaunchKernelEx");
  }

  jit::Dim3 grid() const { return grid_; }

 private:
  CUfunction function_;
  jit::Dim3 grid_;
  uint32_t threads_, smem_bytes_;
  std::array<CUlaunchAttribute, 2> attributes_{};
  unsigned count_ = 0;
};

}  // namespace attune::gpu
