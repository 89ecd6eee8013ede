#include "gpu/device.hpp"

#include <algorithm>

namespace attune::gpu {
namespace {

constexpr int cluster_sizes = static_cast<int>(std::tuple_size_v<decltype(DeviceProperties::clusters)>);

// For questions about launches; compiled by the driver.
constexpr char empty_kernel[] = ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry empty() { ret; }\n";

}  // namespace

std::string DeviceProperties::arch() const {
  // Architecture-specific instructions (wgmma, setmaxnreg) exist only under the name with an "a".
  return fmt::format("sm_{}{}", capability(), major >= 9 ? "a" : "");
}

const std::vector<DeviceProperties>& typical_devices() {
  constexpr int kb = 1024;
  constexpr int64_t mb = int64_t{1} << 20, gb = int64_t{1} << 30;
  static const std::vector<DeviceProperties> devices = {
      {"NVIDIA A100 (typical sm_80)", 8, 0, 108, 163 * kb, 164 * kb, 40 * mb, 80 * gb},
      {"NVIDIA A10 (typical sm_86)", 8, 6, 72, 99 * kb, 100 * kb, 6 * mb, 24 * gb},
      {"NVIDIA L4 (typical sm_89)", 8, 9, 58, 99 * kb, 100 * kb, 48 * mb, 24 * gb},
      {"NVIDIA H200 (typical sm_90a)", 9, 0, 132, 227 * kb, 228 * kb, 60 * mb, 141 * gb, {132, 66, 30, 15, 7}},
  };
  return devices;
}

const DeviceProperties& typical_device(std::string_view arch) {
  std::string known;
  for (const DeviceProperties& device : typical_devices()) {
    if (device.arch() == arch) return device;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", device.arch());
  }
  fail(ATTUNE_INVALID_ARGUMENT, "architecture '{}': those known are {}", arch, known);
}

int blocks_per_sm(const DeviceProperties& device, int registers, int threads, int smem_bytes) {
  constexpr int registers_per_sm = 65536, register_unit = 256, warp_threads = 32;
  constexpr int smem_unit = 128, system_smem_bytes = 1024;
  const int max_warps = device.capability() == 80 || device.major >= 9 ? 64 : 48;
  const int max_blocks = device.capability() == 80 || device.major >= 9 ? 32 : (device.capability() == 89 ? 24 : 16);
  const int warps = (threads + warp_threads - 1) / warp_threads;
  const int registers_per_warp = (registers * warp_threads + register_unit - 1) / register_unit * register_unit;
  // Registers are handed out by each of the four schedulers for its own warps.
  const int warps_by_registers = registers_per_warp == 0 ? max_warps : registers_per_sm / 4 / registers_per_warp * 4;
  const int smem = (smem_bytes + smem_unit - 1) / smem_unit * smem_unit + system_smem_bytes;
  return std::min({max_blocks, max_warps / warps, warps_by_registers / warps, device.smem_per_sm_bytes / smem});
}

Device::Device(const Driver& driver, int index) : driver_(driver) {
  driver_.check(driver_.cuDeviceGet(&handle_, index), "cuDeviceGet");
  char name[256] = "";
  driver_.check(driver_.cuDeviceGetName(name, sizeof name, handle_), "cuDeviceGetName");
  const auto attribute = [&](CUdevice_attribute id) {
    int value = 0;
    driver_.check(driver_.cuDeviceGetAttribute(&value, id, handle_), "cuDeviceGetAttribute");
    return value;
  };
  properties_.name = name;
  properties_.major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  properties_.minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  properties_.sm_count = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  properties_.smem_per_block_bytes = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  properties_.smem_per_sm_bytes = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  properties_.l2_bytes = attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  size_t bytes = 0;
  driver_.check(driver_.cuDeviceTotalMem_v2(&bytes, handle_), "cuDeviceTotalMem");
  properties_.memory_bytes = static_cast<int64_t>(bytes);
  for (int i = 0; i < cluster_sizes && 1 << i <= (properties_.major >= 9 ? largest_portable_cluster : 1); ++i)
    properties_.clusters[i] = properties_.sm_count >> i;
}

Device::~Device() {
  if (context_ != nullptr) driver_.cuDevicePrimaryCtxRelease_v2(handle_);
}

void Device::count_clusters() {
  if (properties_.major < 9) return;
  std::call_once(counted_, [&] {
    const CurrentContext current(driver_, context());
    const RelaxedCapture relaxed(driver_);
    CUmodule module = nullptr;
    if (driver_.cuModuleLoadData(&module, empty_kernel) != CUDA_SUCCESS) return;  // a driver without its PTX compiler
    CUfunction function = nullptr;
    const int smem_bytes = properties_.smem_per_block_bytes;
    if (driver_.cuModuleGetFunction(&function, module, "empty") == CUDA_SUCCESS &&
        driver_.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, smem_bytes) ==
            CUDA_SUCCESS &&
        driver_.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1) == CUDA_SUCCESS)
      for (int i = 1; i < cluster_sizes; ++i) {
        CUlaunchAttribute cluster{CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, {}, {}};
        cluster.value.clusterDim = {1u << i, 1, 1};
        const CUlaunchConfig config{1u << i, 1, 1, 128, 1, 1, static_cast<unsigned>(smem_bytes), nullptr, &cluster, 1};
        int count = 0;
        if (driver_.cuOccupancyMaxActiveClusters(&count, function, &config) == CUDA_SUCCESS)
          properties_.clusters[i] = count;
      }
    driver_.cuModuleUnload(module);
  });
}

CUcontext Device::context() {
  std::call_once(retained_, [&] {
    CUcontext context = nullptr;
    driver_.check(driver_.cuDevicePrimaryCtxRetain(&context, handle_), "cuDevicePrimaryCtxRetain");
    context_ = context;
  });
  return context_;
}

}  // namespace attune::gpu
