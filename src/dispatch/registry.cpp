#include <algorithm>
#include <memory>
#include <vector>

#include "dispatch/kernel.hpp"

namespace attune {
namespace {

struct Registry {
  std::vector<std::unique_ptr<const Kernel>> owned;
  std::vector<const Kernel*> sorted;
};

// A function-local static: registrations run before main, in no particular order of files.
Registry& registry() {
  static Registry instance;
  return instance;
}

}  // namespace

void register_kernel(std::unique_ptr<const Kernel> kernel) {
  auto& [owned, sorted] = registry();
  const auto by_name = [](const Kernel* a, const Kernel* b) { return a->name() < b->name(); };
  sorted.insert(std::upper_bound(sorted.begin(), sorted.end(), kernel.get(), by_name), kernel.get());
  owned.push_back(std::move(kernel));
}

const std::vector<const Kernel*>& kernels() { return registry().sorted; }

const Kernel* find_kernel(std::string_view name) {
  for (const Kernel* kernel : kernels())
    if (kernel->name() == name) return kernel;
  return nullptr;
}

}  // namespace attune
