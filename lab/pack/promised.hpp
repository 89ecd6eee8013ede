// The promised kernels, compiled: their actual figures, whether these stay under the ceilings, and the packs made of
// them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "jit/store.hpp"
#include "lab/pack/manifest.hpp"

namespace attune::lab {

struct PromisedKernel {
  Promise promise;
  std::shared_ptr<const jit::Built> built;
  int smem_bytes = 0;  // static and dynamic
  int blocks_per_sm = 0;
};

// Compiles on every CPU at once. `progress` is told how many are done, one call at a time.
std::vector<PromisedKernel> compile_promised(std::vector<Promise> promises, jit::Store& store,
                                             const std::function<void(size_t done)>& progress = {});

// What breaks a ceiling, a line each; empty if all is well.
std::vector<std::string> broken_ceilings(const PromisedKernel& kernel);

// docs/kernel-resources.md
std::string resources_table(const std::vector<PromisedKernel>& kernels);

// One pack per architecture into `directory`; returns their paths. Throws if they were not all made by one compiler.
std::vector<std::string> write_packs(const std::vector<PromisedKernel>& kernels, const std::string& directory);

}  // namespace attune::lab
