#include "gpu/runtime.hpp"

#include <chrono>
#include <climits>

namespace attune::gpu {

Runtime::Runtime() : Runtime(find_driver(), driver_absence(), jit::store_options_from_environment()) {}

Runtime::Runtime(const Driver& driver, jit::StoreOptions options) : Runtime(&driver, "", std::move(options)) {}

Runtime::Runtime(const Driver* driver, std::string absence, jit::StoreOptions options)
    : driver_(driver), absence_(std::move(absence)), store_(std::move(options)) {
  if (driver_ == nullptr) return;
  int count = 0;
  driver_->check(driver_->cuDeviceGetCount(&count), "cuDeviceGetCount");
  for (int i = 0; i < count; ++i) devices_.push_back(std::make_unique<Device>(*driver_, i));
  if (count == 0) absence_ = "the CUDA driver sees no GPU";
}

Runtime::Runtime(std::vector<DeviceProperties> on_paper)
    : Runtime(nullptr, "these devices exist on paper only", jit::store_options_from_environment()) {
  on_paper_ = std::move(on_paper);
}

Runtime::~Runtime() {
  for (const Module& module : modules_) {
    try {
      const CurrentContext current(*driver_, devices_[module.device_index]->context());
      driver_->cuModuleUnload(module.module);
    } catch (const Error&) {
      // At the end of a process the driver may be gone, and its modules with it.
    }
  }
}

void Runtime::require(int index) const {
  if (index >= 0 && index < device_count()) return;
  if (device_count() == 0) fail(ATTUNE_NO_DEVICE, "{}", absence_);
  fail(ATTUNE_NO_DEVICE, "device_index is {}; there are {} GPUs", index, device_count());
}

const DeviceProperties& Runtime::properties(int index) const {
  require(index);
  if (devices_.empty()) return on_paper_[index];
  devices_[index]->count_clusters();
  return devices_[index]->properties();
}

Device& Runtime::device(int index) {
  require(index);
  if (devices_.empty()) fail(ATTUNE_NO_DEVICE, "{}", absence_);
  return *devices_[index];
}

int Runtime::newest_compiler_major() const { return driver_ == nullptr ? INT_MAX : driver_->major(); }

const LoadedKernel& Runtime::load(const jit::DeviceUnit& unit, int device_index) {
  const auto begin = std::chrono::steady_clock::now();
  Device& target = device(device_index);
  auto built = store_.get(unit, target.properties().arch(), newest_compiler_major());

  const std::lock_guard lock(mutex_);
  const auto [entry, added] = loaded_.try_emplace({device_index, built->key, unit.smem_bytes});
  if (!added) return entry->second;
  try {
    const CurrentContext current(*driver_, target.context());
    const RelaxedCapture relaxed(*driver_);
    CUmodule module = nullptr;
    driver_->check(driver_->cuModuleLoadData(&module, built->cubin.data()), "cuModuleLoadData");
    modules_.push_back({module, device_index});
    LoadedKernel& kernel = entry->second;
    driver_->check(driver_->cuModuleGetFunction(&kernel.function, module, jit::entry_name), "cuModuleGetFunction");
    if (unit.smem_bytes > 0) {
      driver_->check(driver_->cuFuncSetAttribute(kernel.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                 static_cast<int>(unit.smem_bytes)),
                     "cuFuncSetAttribute(dynamic shared memory)");
      // All of it: otherwise the driver may leave a second CTA no room beside the first.
      driver_->check(
          driver_->cuFuncSetAttribute(kernel.function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100),
          "cuFuncSetAttribute(carveout)");
    }
    if (unit.cluster.x * unit.cluster.y * unit.cluster.z > uint32_t{largest_portable_cluster})
      driver_->check(
          driver_->cuFuncSetAttribute(kernel.function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
          "cuFuncSetAttribute(cluster size)");
    kernel.built = std::move(built);
    kernel.load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return kernel;
  } catch (const Error& error) {
    loaded_.erase(entry);
    fail(error.status, "{} on {}: {}", label_of(unit), target.properties().name, error.what());
  }
}

bool Runtime::is_loaded(const jit::DeviceUnit& unit, int device_index) {
  const auto built = store_.find(unit, device(device_index).properties().arch(), newest_compiler_major());
  const std::lock_guard lock(mutex_);
  return built != nullptr && loaded_.contains({device_index, built->key, unit.smem_bytes});
}

bool Runtime::is_capturing(int device_index, void* stream) {
  Device& target = device(device_index);
  const CurrentContext current(*driver_, target.context());
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = driver_->cuStreamIsCapturing(static_cast<CUstream>(stream), &status);
  // The legacy stream cannot be asked while another stream captures: to the caller that is the same.
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return true;
  driver_->check(result, "cuStreamIsCapturing");
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

std::string Runtime::describe() {
  std::string text;
  for (int i = 0; i < device_count(); ++i) {
    const DeviceProperties& p = devices_.empty() ? on_paper_[i] : devices_[i]->properties();
    text +=
        fmt::format("cuda {}: {}, {}, {} SMs, {} KB shared memory per block, {:.0f} MB L2, {:.0f} GB\n", i, p.name,
                    p.arch(), p.sm_count, p.smem_per_block_bytes / 1024, p.l2_bytes / 0x1p20, p.memory_bytes / 0x1p30);
  }
  if (!absence_.empty()) text += fmt::format("cuda: {}\n", absence_);
  if (driver_ != nullptr)
    text += fmt::format("CUDA driver: {}.{}{}\n", driver_->version / 1000, driver_->version % 1000 / 10,
                        driver_->major() < 13 ? "; kernels of the pack need 13.0 (R580)" : "");
  return text + store_.describe(newest_compiler_major());
}

}  // namespace attune::gpu
