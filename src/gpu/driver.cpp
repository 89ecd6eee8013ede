#include "gpu/driver.hpp"

#include <dlfcn.h>

namespace attune::gpu {
namespace {

struct Loaded {
  Driver driver;
  std::string absence;
};

Loaded load() {
  Loaded loaded;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    loaded.absence = fmt::format("no CUDA driver: {}", dlerror());
    return loaded;
  }
  Driver& driver = loaded.driver;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr && loaded.absence.empty())
      loaded.absence = fmt::format("the CUDA driver has no {}: it is older than CUDA {}.{}", name, oldest_driver / 1000,
                                   oldest_driver % 1000 / 10);
  };
  find(driver.cuDriverGetVersion, "cuDriverGetVersion");
  if (driver.cuDriverGetVersion != nullptr && driver.cuDriverGetVersion(&driver.version) == CUDA_SUCCESS &&
      driver.version < oldest_driver) {
    loaded.absence = fmt::format(
        "the CUDA driver is for CUDA {}.{}; {}.{} (R530) is the oldest that works, and 13.0 (R580) the oldest "
        "that loads the kernels of the pack",
        driver.version / 1000, driver.version % 1000 / 10, oldest_driver / 1000, oldest_driver % 1000 / 10);
    return loaded;
  }
#define ATTUNE_LOAD(name, ...) find(driver.name, #name);
  ATTUNE_DRIVER_FUNCTIONS(ATTUNE_LOAD)
#undef ATTUNE_LOAD
  if (!loaded.absence.empty()) return loaded;
  if (const CUresult result = driver.cuInit(0); result != CUDA_SUCCESS)
    loaded.absence = fmt::format("the CUDA driver does not start: {}", driver.text_of(result));
  return loaded;
}

const Loaded& loaded() {
  static const Loaded once = load();
  return once;
}

}  // namespace

std::string Driver::text_of(CUresult result) const {
  const char *name = nullptr, *text = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) return fmt::format("error {}", result);
  if (cuGetErrorString(result, &text) != CUDA_SUCCESS || text == nullptr) text = "";
  return fmt::format("{} ({})", text, name);
}

void Driver::throw_error(CUresult result, const char* what) const {
  fail(ATTUNE_DEVICE_ERROR, "{}: {}", what, text_of(result));
}

const Driver* find_driver() { return loaded().absence.empty() ? &loaded().driver : nullptr; }

const std::string& driver_absence() { return loaded().absence; }

const Driver& driver() {
  if (const Driver* found = find_driver()) return *found;
  fail(ATTUNE_NO_DEVICE, "{}", driver_absence());
}

}  // namespace attune::gpu
