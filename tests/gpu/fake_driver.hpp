// A CUDA driver that only takes notes: what the library asks of the real one is tested without a GPU.
#pragma once

#include <atomic>
#include <cstring>
#include <mutex>
#include <set>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/driver.hpp"

namespace attune::gpu::fake {

struct Launched {
  jit::Dim3 grid, cluster;
  unsigned threads = 0, smem_bytes = 0;
  bool programmatic = false;
  CUstream stream = nullptr;
  CUfunction function = nullptr;
  CUcontext context = nullptr;
  std::vector<std::byte> params;  // the first params_bytes
};

struct State {
  std::mutex mutex;
  std::vector<DeviceProperties> devices = {typical_device("sm_90a")};
  std::vector<Launched> launches;
  size_t params_bytes = 0;  // how much of the parameters to note
  bool take_notes = true;
  int modules = 0, retained = 0, unloaded = 0, loads_in_capture_mode = 0;
  CUresult load_result = CUDA_SUCCESS;
  int ptx_modules = 0;  // made of PTX, and gone again: not counted above
  CUresult ptx_result = CUDA_SUCCESS;
  std::set<CUstream> capturing;
  std::atomic<uint64_t> maps = 0;  // encoded so far
};
inline State state;
inline thread_local std::vector<CUcontext> contexts;  // the stack of this thread
inline thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

// A handle or pointer that nobody follows.
template <typename Handle>
Handle handle(uintptr_t number) {
  return reinterpret_cast<Handle>(number);  // NOLINT(performance-no-int-to-ptr)
}
inline CUcontext primary(int device) { return handle<CUcontext>(0x1000 + static_cast<uintptr_t>(device)); }
inline size_t device_of(CUcontext context) { return reinterpret_cast<uintptr_t>(context) - 0x1000; }
inline CUmodule ptx_module() { return handle<CUmodule>(0x9999); }

// Everything back to how it was at first, and a driver for it. Functions that no test needs are null.
inline Driver fresh() {
  state.devices = {typical_device("sm_90a")};
  state.launches.clear();
  state.params_bytes = 0;
  state.take_notes = true;
  state.modules = state.retained = state.unloaded = state.loads_in_capture_mode = 0;
  state.load_result = CUDA_SUCCESS;
  state.ptx_modules = 0;
  state.ptx_result = CUDA_SUCCESS;
  state.capturing.clear();
  state.maps = 0;
  contexts.clear();

  Driver d;
  d.version = 13000;
  d.cuGetErrorName = [](CUresult, const char** text) { return *text = "CUDA_ERROR_TEST", CUDA_SUCCESS; };
  d.cuGetErrorString = [](CUresult, const char** text) { return *text = "a test's error", CUDA_SUCCESS; };
  d.cuDeviceGetCount = [](int* count) { return *count = static_cast<int>(state.devices.size()), CUDA_SUCCESS; };
  d.cuDeviceGet = [](CUdevice* device, int index) { return *device = index, CUDA_SUCCESS; };
  d.cuDeviceGetName = [](char* name, int capacity, CUdevice device) {
    std::strncpy(name, state.devices[device].name.c_str(), static_cast<size_t>(capacity));
    return CUDA_SUCCESS;
  };
  d.cuDeviceGetAttribute = [](int* value, CUdevice_attribute attribute, CUdevice device) {
    const DeviceProperties& p = state.devices[device];
    switch (attribute) {
      case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = p.sm_count;
        break;
      case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
        *value = static_cast<int>(p.l2_bytes);
        break;
      case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = p.major;
        break;
      case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = p.minor;
        break;
      case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
        *value = p.smem_per_sm_bytes;
        break;
      case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        *value = p.smem_per_block_bytes;
        break;
    }
    return CUDA_SUCCESS;
  };
  d.cuDeviceTotalMem_v2 = [](size_t* bytes, CUdevice device) {
    return *bytes = static_cast<size_t>(state.devices[device].memory_bytes), CUDA_SUCCESS;
  };
  d.cuDevicePrimaryCtxRetain = [](CUcontext* context, CUdevice device) {
    ++state.retained;
    return *context = primary(device), CUDA_SUCCESS;
  };
  d.cuDevicePrimaryCtxRelease_v2 = [](CUdevice) { return --state.retained, CUDA_SUCCESS; };
  d.cuCtxGetCurrent = [](CUcontext* context) {
    return *context = contexts.empty() ? nullptr : contexts.back(), CUDA_SUCCESS;
  };
  d.cuCtxPushCurrent_v2 = [](CUcontext context) { return contexts.push_back(context), CUDA_SUCCESS; };
  d.cuCtxPopCurrent_v2 = [](CUcontext* context) {
    *context = contexts.back();
    contexts.pop_back();
    return CUDA_SUCCESS;
  };
  d.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode* new_mode) {
    return std::swap(mode, *new_mode), CUDA_SUCCESS;
  };
  d.cuModuleLoadData = [](CUmodule* module, const void* image) {
    const std::lock_guard lock(state.mutex);
    if (mode != CU_STREAM_CAPTURE_MODE_RELAXED) ++state.loads_in_capture_mode;
    if (std::memcmp(image, ".version", 8) == 0) {
      *module = ptx_module();
      if (state.ptx_result == CUDA_SUCCESS) ++state.ptx_modules;
      return state.ptx_result;
    }
    *module = handle<CUmodule>(static_cast<uintptr_t>(++state.modules));
    return state.load_result;
  };
  d.cuModuleUnload = [](CUmodule module) {
    if (module != ptx_module()) ++state.unloaded;
    return CUDA_SUCCESS;
  };
  d.cuModuleGetFunction = [](CUfunction* function, CUmodule module, const char*) {
    return *function = handle<CUfunction>(reinterpret_cast<uintptr_t>(module)), CUDA_SUCCESS;
  };
  d.cuFuncSetAttribute = [](CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; };
  d.cuOccupancyMaxActiveClusters = [](int* clusters, CUfunction, const CUlaunchConfig* config) {
    const DeviceProperties& p = state.devices[device_of(contexts.back())];
    const bool alone_on_sm = static_cast<int>(config->sharedMemBytes) > p.smem_per_sm_bytes / 2;
    *clusters = p.clusters_of(static_cast<int>(config->attrs[0].value.clusterDim.x)) * (alone_on_sm ? 1 : 2);
    return CUDA_SUCCESS;
  };
  d.cuStreamIsCapturing = [](CUstream stream, CUstreamCaptureStatus* status) {
    *status = state.capturing.contains(stream) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    // As the real one answers for the legacy stream while another one captures.
    return stream == nullptr && !state.capturing.empty() ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
  };
  d.cuTensorMapEncodeTiled = [](CUtensorMap* map, CUtensorMapDataType, uint32_t, void* address, const uint64_t*,
                                const uint64_t*, const uint32_t*, const uint32_t*, CUtensorMapInterleave,
                                CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    map->words[0] = reinterpret_cast<uintptr_t>(address);
    map->words[1] = ++state.maps;
    return CUDA_SUCCESS;
  };
  d.cuLaunchKernelEx = [](const CUlaunchConfig* config, CUfunction function, void** params, void**) {
    if (!state.take_notes) return CUDA_SUCCESS;
    const std::lock_guard lock(state.mutex);
    Launched launched{{config->gridDimX, config->gridDimY, config->gridDimZ},
                      {},
                      config->blockDimX,
                      config->sharedMemBytes,
                      false,
                      config->hStream,
                      function,
                      contexts.back(),
                      {}};
    for (unsigned i = 0; i < config->numAttrs; ++i) {
      const CUlaunchAttribute& attribute = config->attrs[i];
      if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
        launched.cluster = {attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z};
      else
        launched.programmatic = attribute.value.programmaticStreamSerializationAllowed != 0;
    }
    const auto* bytes = static_cast<const std::byte*>(params[0]);
    launched.params.assign(bytes, bytes + state.params_bytes);
    state.launches.push_back(std::move(launched));
    return CUDA_SUCCESS;
  };
  return d;
}

}  // namespace attune::gpu::fake
