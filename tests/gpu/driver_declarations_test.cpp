// Our own declarations of the CUDA driver against cuda.h, where a toolkit is present when this is built.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <string_view>

#include "gpu/driver.hpp"

#if __has_include(<cuda.h>)

namespace {

// What can be told of a function type without its names: how many parameters, and how many bytes each has.
template <typename... Parameters>
constexpr std::array<size_t, 16> parameter_sizes(int (*)(Parameters...)) {
  std::array<size_t, 16> sizes{sizeof...(Parameters)};
  size_t i = 1;
  ((sizes[i++] = sizeof(Parameters)), ...);  // NOLINT(bugprone-sizeof-expression): of pointers, too
  return sizes;
}

struct Declared {
  std::string_view name;
  std::array<size_t, 16> sizes;
};
// Before cuda.h, whose macros rename functions.
#define ATTUNE_DECLARED(function, ...) {#function, parameter_sizes(attune::gpu::Driver{}.function)},
constexpr Declared ours[] = {ATTUNE_DRIVER_FUNCTIONS(ATTUNE_DECLARED)};

}  // namespace

#include <cuda.h>

namespace {

template <typename... Parameters>
constexpr std::array<size_t, 16> real_parameter_sizes(CUresult (*)(Parameters...)) {
  std::array<size_t, 16> sizes{sizeof...(Parameters)};
  size_t i = 1;
  ((sizes[i++] = sizeof(Parameters)), ...);  // NOLINT(bugprone-sizeof-expression): of pointers, too
  return sizes;
}
#define ATTUNE_REAL(function, ...) {#function, real_parameter_sizes(static_cast<decltype(&::function)>(nullptr))},
constexpr Declared real[] = {ATTUNE_DRIVER_FUNCTIONS(ATTUNE_REAL)};

TEST(DriverDeclarations, FunctionsTakeWhatCudaSays) {
  ASSERT_EQ(std::size(ours), std::size(real));
  for (size_t i = 0; i < std::size(ours); ++i) EXPECT_EQ(ours[i].sizes, real[i].sizes) << ours[i].name;
}

#define EXPECT_SAME_LAYOUT(type, field) \
  EXPECT_EQ(offsetof(attune::gpu::type, field), offsetof(::type, field)) << #type "." #field
#define EXPECT_SAME_SIZE(type) EXPECT_EQ(sizeof(attune::gpu::type), sizeof(::type)) << #type
#define EXPECT_SAME_VALUE(name) EXPECT_EQ(int(attune::gpu::name), int(::name)) << #name

TEST(DriverDeclarations, StructsLieAsInCuda) {
  EXPECT_SAME_SIZE(CUlaunchConfig);
  EXPECT_SAME_LAYOUT(CUlaunchConfig, gridDimX);
  EXPECT_SAME_LAYOUT(CUlaunchConfig, gridDimZ);
  EXPECT_SAME_LAYOUT(CUlaunchConfig, blockDimX);
  EXPECT_SAME_LAYOUT(CUlaunchConfig, sharedMemBytes);
  EXPECT_SAME_LAYOUT(CUlaunchConfig, hStream);
  EXPECT_SAME_LAYOUT(CUlaunchConfig, attrs);
  EXPECT_SAME_LAYOUT(CUlaunchConfig, numAttrs);
  EXPECT_SAME_SIZE(CUlaunchAttribute);
  EXPECT_SAME_LAYOUT(CUlaunchAttribute, id);
  EXPECT_SAME_LAYOUT(CUlaunchAttribute, value);
  EXPECT_SAME_SIZE(CUlaunchAttributeValue);
  EXPECT_SAME_LAYOUT(CUlaunchAttributeValue, clusterDim.y);
  EXPECT_SAME_LAYOUT(CUlaunchAttributeValue, programmaticStreamSerializationAllowed);
  EXPECT_SAME_SIZE(CUtensorMap);
  EXPECT_SAME_SIZE(CUdevice);
  EXPECT_SAME_SIZE(CUdeviceptr);
  EXPECT_SAME_SIZE(CUresult);
}

TEST(DriverDeclarations, ConstantsHaveTheValuesOfCuda) {
  EXPECT_SAME_VALUE(CUDA_SUCCESS);
  EXPECT_SAME_VALUE(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_SAME_VALUE(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  EXPECT_SAME_VALUE(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  EXPECT_SAME_VALUE(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  EXPECT_SAME_VALUE(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  EXPECT_SAME_VALUE(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  EXPECT_SAME_VALUE(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  EXPECT_SAME_VALUE(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  EXPECT_SAME_VALUE(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
  EXPECT_SAME_VALUE(CU_FUNC_ATTRIBUTE_NUM_REGS);
  EXPECT_SAME_VALUE(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  EXPECT_SAME_VALUE(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
  EXPECT_SAME_VALUE(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
  EXPECT_SAME_VALUE(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
  EXPECT_SAME_VALUE(CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_SAME_VALUE(CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_SAME_VALUE(CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_SAME_VALUE(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  EXPECT_SAME_VALUE(CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_SAME_VALUE(CU_STREAM_NON_BLOCKING);
  EXPECT_SAME_VALUE(CU_EVENT_DEFAULT);
  EXPECT_SAME_VALUE(CU_EVENT_DISABLE_TIMING);
  EXPECT_SAME_VALUE(CU_TENSOR_MAP_DATA_TYPE_UINT8);
  EXPECT_SAME_VALUE(CU_TENSOR_MAP_DATA_TYPE_UINT16);
  EXPECT_SAME_VALUE(CU_TENSOR_MAP_DATA_TYPE_UINT32);
  EXPECT_SAME_VALUE(CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
  EXPECT_SAME_VALUE(CU_TENSOR_MAP_DATA_TYPE_FLOAT32);
  EXPECT_SAME_VALUE(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
  EXPECT_SAME_VALUE(CU_TENSOR_MAP_INTERLEAVE_NONE);
  EXPECT_SAME_VALUE(CU_TENSOR_MAP_SWIZZLE_NONE);
  EXPECT_SAME_VALUE(CU_TENSOR_MAP_SWIZZLE_32B);
  EXPECT_SAME_VALUE(CU_TENSOR_MAP_SWIZZLE_64B);
  EXPECT_SAME_VALUE(CU_TENSOR_MAP_SWIZZLE_128B);
  EXPECT_SAME_VALUE(CU_TENSOR_MAP_L2_PROMOTION_NONE);
  EXPECT_SAME_VALUE(CU_TENSOR_MAP_L2_PROMOTION_L2_64B);
  EXPECT_SAME_VALUE(CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
  EXPECT_SAME_VALUE(CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
  EXPECT_SAME_VALUE(CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

}  // namespace

#else

TEST(DriverDeclarations, AgreeWithCuda) {
  GTEST_SKIP() << "no cuda.h when this was built (looked in CUDA_HOME and the usual places)";
}

#endif
