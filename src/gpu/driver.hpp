// The CUDA driver (libcuda.so.1), loaded by dlopen: the library links against nothing of CUDA and is built without its
// headers. The few types and functions used are declared here under their own names; tests/gpu compares them with
// cuda.h where a toolkit is present.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/error.hpp"
#include "kernels/common/types.cuh"

namespace attune::gpu {

using CUresult = int;
inline constexpr CUresult CUDA_SUCCESS = 0, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906;

using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;
using CUgraphNode = struct CUgraphNode_st*;

enum CUdevice_attribute : int {
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
};

enum CUfunction_attribute : int {
  CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
  CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
  CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
  CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT = 9,
  CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14,
};

enum CUlaunchAttributeID : int {
  CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4,
  CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
};
union CUlaunchAttributeValue {
  char pad[64];
  struct {
    unsigned x, y, z;
  } clusterDim;
  int programmaticStreamSerializationAllowed;
};
struct CUlaunchAttribute {
  CUlaunchAttributeID id;
  char pad[4];
  CUlaunchAttributeValue value;
};
struct CUlaunchConfig {
  unsigned gridDimX, gridDimY, gridDimZ;
  unsigned blockDimX, blockDimY, blockDimZ;
  unsigned sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute* attrs;
  unsigned numAttrs;
};

enum CUstreamCaptureStatus : int { CU_STREAM_CAPTURE_STATUS_NONE = 0, CU_STREAM_CAPTURE_STATUS_ACTIVE = 1 };
enum CUstreamCaptureMode : int {
  CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
  CU_STREAM_CAPTURE_MODE_RELAXED = 2,
};
inline constexpr unsigned CU_STREAM_NON_BLOCKING = 1;
inline constexpr unsigned CU_EVENT_DEFAULT = 0, CU_EVENT_DISABLE_TIMING = 2;

enum CUtensorMapDataType : int {
  CU_TENSOR_MAP_DATA_TYPE_UINT8 = 0,
  CU_TENSOR_MAP_DATA_TYPE_UINT16 = 1,
  CU_TENSOR_MAP_DATA_TYPE_UINT32 = 2,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT16 = 6,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT32 = 7,
  CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9,
};
enum CUtensorMapInterleave : int { CU_TENSOR_MAP_INTERLEAVE_NONE = 0 };
enum CUtensorMapSwizzle : int {
  CU_TENSOR_MAP_SWIZZLE_NONE = 0,
  CU_TENSOR_MAP_SWIZZLE_32B = 1,
  CU_TENSOR_MAP_SWIZZLE_64B = 2,
  CU_TENSOR_MAP_SWIZZLE_128B = 3,
};
enum CUtensorMapL2promotion : int {
  CU_TENSOR_MAP_L2_PROMOTION_NONE = 0,
  CU_TENSOR_MAP_L2_PROMOTION_L2_64B = 1,
  CU_TENSOR_MAP_L2_PROMOTION_L2_128B = 2,
  CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 3,
};
enum CUtensorMapFloatOOBfill : int { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0 };

using CUtensorMap = device::TensorMap;

// Every function, by the name under which libcuda exports it, and its parameters. All return CUresult.
#define ATTUNE_DRIVER_FUNCTIONS(F)                                                                                 \
  F(cuInit, unsigned flags)                                                                                        \
  F(cuDriverGetVersion, int* version)                                                                              \
  F(cuGetErrorName, CUresult error, const char** text)                                                             \
  F(cuGetErrorString, CUresult error, const char** text)                                                           \
  F(cuDeviceGetCount, int* count)                                                                                  \
  F(cuDeviceGet, CUdevice* device, int ordinal)                                                                    \
  F(cuDeviceGetName, char* name, int capacity, CUdevice device)                                                    \
  F(cuDeviceGetAttribute, int* value, CUdevice_attribute attribute, CUdevice device)                               \
  F(cuDeviceTotalMem_v2, size_t* bytes, CUdevice device)                                                           \
  F(cuDevicePrimaryCtxRetain, CUcontext* context, CUdevice device)                                                 \
  F(cuDevicePrimaryCtxRelease_v2, CUdevice device)                                                                 \
  F(cuCtxGetCurrent, CUcontext* context)                                                                           \
  F(cuCtxSetCurrent, CUcontext context)                                                                            \
  F(cuCtxPushCurrent_v2, CUcontext context)                                                                        \
  F(cuCtxPopCurrent_v2, CUcontext* context)                                                                        \
  F(cuCtxSynchronize)                                                                                              \
  F(cuModuleLoadData, CUmodule* module, const void* image)                                                         \
  F(cuModuleUnload, CUmodule module)                                                                               \
  F(cuModuleGetFunction, CUfunction* function, CUmodule module, const char* name)                                  \
  F(cuFuncGetAttribute, int* value, CUfunction_attribute attribute, CUfunction function)                           \
  F(cuFuncSetAttribute, CUfunction function, CUfunction_attribute attribute, int value)                            \
  F(cuLaunchKernelEx, const CUlaunchConfig* config, CUfunction function, void** params, void** extra)              \
  F(cuOccupancyMaxActiveBlocksPerMultiprocessor, int* blocks, CUfunction function, int threads, size_t smem_bytes) \
  F(cuOccupancyMaxActiveClusters, int* clusters, CUfunction function, const CUlaunchConfig* config)                \
  F(cuTensorMapEncodeTiled, CUtensorMap* map, CUtensorMapDataType type, uint32_t rank, void* address,              \
    const uint64_t* dims, const uint64_t* strides, const uint32_t* box, const uint32_t* element_strides,           \
    CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,                \
    CUtensorMapFloatOOBfill fill)                                                                                  \
  F(cuMemAlloc_v2, CUdeviceptr* memory, size_t bytes)                                                              \
  F(cuMemFree_v2, CUdeviceptr memory)                                                                              \
  F(cuMemGetInfo_v2, size_t* free, size_t* total)                                                                  \
  F(cuMemcpyHtoD_v2, CUdeviceptr to, const void* from, size_t bytes)                                               \
  F(cuMemcpyDtoH_v2, void* to, CUdeviceptr from, size_t bytes)                                                     \
  F(cuMemcpyHtoDAsync_v2, CUdeviceptr to, const void* from, size_t bytes, CUstream stream)                         \
  F(cuMemcpyDtoHAsync_v2, void* to, CUdeviceptr from, size_t bytes, CUstream stream)                               \
  F(cuMemcpyDtoDAsync_v2, CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)                         \
  F(cuMemsetD8_v2, CUdeviceptr memory, unsigned char value, size_t count)                                          \
  F(cuMemsetD8Async, CUdeviceptr memory, unsigned char value, size_t count, CUstream stream)                       \
  F(cuMemsetD32_v2, CUdeviceptr memory, unsigned value, size_t count)                                              \
  F(cuStreamCreate, CUstream* stream, unsigned flags)                                                              \
  F(cuStreamDestroy_v2, CUstream stream)                                                                           \
  F(cuStreamSynchronize, CUstream stream)                                                                          \
  F(cuStreamWaitEvent, CUstream stream, CUevent event, unsigned flags)                                             \
  F(cuStreamIsCapturing, CUstream stream, CUstreamCaptureStatus* status)                                           \
  F(cuStreamBeginCapture_v2, CUstream stream, CUstreamCaptureMode mode)                                            \
  F(cuStreamEndCapture, CUstream stream, CUgraph* graph)                                                           \
  F(cuThreadExchangeStreamCaptureMode, CUstreamCaptureMode* mode)                                                  \
  F(cuGraphInstantiateWithFlags, CUgraphExec* executable, CUgraph graph, unsigned long long flags)                 \
  F(cuGraphLaunch, CUgraphExec executable, CUstream stream)                                                        \
  F(cuGraphGetNodes, CUgraph graph, CUgraphNode* nodes, size_t* count)                                             \
  F(cuGraphDestroy, CUgraph graph)                                                                                 \
  F(cuGraphExecDestroy, CUgraphExec executable)                                                                    \
  F(cuEventCreate, CUevent* event, unsigned flags)                                                                 \
  F(cuEventRecord, CUevent event, CUstream stream)                                                                 \
  F(cuEventSynchronize, CUevent event)                                                                             \
  F(cuEventElapsedTime, float* milliseconds, CUevent begin, CUevent end)                                           \
  F(cuEventDestroy_v2, CUevent event)

struct Driver {
#define ATTUNE_DECLARE(name, ...) CUresult (*name)(__VA_ARGS__) = nullptr;
  ATTUNE_DRIVER_FUNCTIONS(ATTUNE_DECLARE)
#undef ATTUNE_DECLARE

  int version = 0;  // 13000 for CUDA 13.0
  int major() const { return version / 1000; }

  // Throws ATTUNE_DEVICE_ERROR naming `what` and the driver's own words.
  void check(CUresult result, const char* what) const {
    if (result != CUDA_SUCCESS) [[unlikely]]
      throw_error(result, what);
  }
  std::string text_of(CUresult result) const;
  [[noreturn]] void throw_error(CUresult result, const char* what) const;
};

// The oldest driver that has every function above and takes more than 4 KB of kernel parameters: CUDA 12.1, R530.
// Kernels compiled by NVRTC 13, as in the pack, need CUDA 13.0, R580; with an older driver an NVRTC 12 is used,
// unmeasured.
inline constexpr int oldest_driver = 12010;

// Loaded once per process. nullptr if there is no usable driver, which includes that an ancestor of this process loaded
// it: driver_absence() says why.
const Driver* find_driver();
const std::string& driver_absence();
const Driver& driver();  // throws ATTUNE_NO_DEVICE with that text

}  // namespace attune::gpu
