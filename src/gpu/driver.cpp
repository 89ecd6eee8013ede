#include "gpu/driver.hpp"

#include <dlfcn.h>

#include <atomic>

#include "core/forks.hpp"

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

const Loaded& lost_by_fork() {
  static MadeOnce<Loaded> lost;
  return lost.get([] {
    return Loaded{
        {},
        "the process that this one was forked from has started the CUDA driver, which does not survive a fork; "
        "start processes by spawn or exec, or fork before the first call for a GPU"};
  });
}

const Loaded& loaded() {
  static std::atomic<uint32_t> first_process{0};  // to begin: 1 + forks()
  static MadeOnce<Loaded> once;
  const uint32_t here = forks() + 1;
  uint32_t first = first_process.load();
  if (first == here || (first == 0 && (first_process.compare_exchange_strong(first, here) || first == here)))
    return once.get(load);
  const Loaded* inherited = once.made();
  return inherited != nullptr && !inherited->absence.empty() ? *inherited : lost_by_fork();
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
