// The GPU side of a context: devices, the store of cubins, and the kernels loaded from it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "gpu/device.hpp"
#include "jit/store.hpp"

namespace attune::gpu {

// A kernel on a device, ready to launch; unloaded with the Runtime.
struct LoadedKernel {
  CUfunction function = nullptr;
  std::shared_ptr<const jit::Built> built;
  double load_seconds = 0;  // store and driver together
};

class Runtime {
 public:
  Runtime();  // never throws for want of a GPU
  Runtime(const Driver& driver, jit::StoreOptions options);
  // Devices on paper: selection and planning work as they would there, loading and launching do not.
  explicit Runtime(std::vector<DeviceProperties> on_paper);
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  ~Runtime();

  const std::string& absence() const { return absence_; }  // why there is no GPU; "" if there is one
  int device_count() const { return static_cast<int>(devices_.empty() ? on_paper_.size() : devices_.size()); }
  // Throws ATTUNE_NO_DEVICE: the device is absent.
  const DeviceProperties& properties(int index) const;
  Device& device(int index);

  jit::Store& store() { return store_; }
  int newest_compiler_major() const;  // whose cubins the driver loads; any, on paper

  // Compiles if need be and loads. Not to be called inside a graph capture.
  const LoadedKernel& load(const jit::DeviceUnit& unit, int device_index);

  bool is_loaded(const jit::DeviceUnit& unit, int device_index);

  // A kernel must not be compiled or loaded for a call on such a stream.
  bool is_capturing(int device_index, void* stream);

  std::string describe();  // for `attune info`

 private:
  struct Module {
    CUmodule module;
    int device_index;
  };

  Runtime(const Driver* driver, std::string absence, jit::StoreOptions options);
  void require(int index) const;  // that there is such a device

  const Driver* const driver_;
  std::string absence_;
  jit::Store store_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<DeviceProperties> on_paper_;

  std::mutex mutex_;
  std::map<std::tuple<int, jit::Key, uint32_t>, LoadedKernel> loaded_;  // device, cubin, shared memory
  std::vector<Module> modules_;
};

}  // namespace attune::gpu
