#include "lab/pack/promised.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>

#include "core/error.hpp"
#include "cpu/threads.hpp"
#include "gpu/device.hpp"
#include "jit/embedded.hpp"

namespace attune::lab {

std::vector<PromisedKernel> compile_promised(std::vector<Promise> promises, jit::Store& store,
                                             const std::function<void(size_t)>& progress) {
  std::vector<PromisedKernel> kernels(promises.size());
  cpu::Threads threads{attune_options{}};
  std::mutex mutex;
  size_t done = 0;
  threads.parallel_for(static_cast<int64_t>(promises.size()), [&](int64_t i) {
    PromisedKernel& kernel = kernels[static_cast<size_t>(i)];
    kernel.promise = std::move(promises[static_cast<size_t>(i)]);
    const jit::DeviceUnit& unit = kernel.promise.unit;
    kernel.built = store.get(unit, kernel.promise.arch);
    kernel.smem_bytes = static_cast<int>(unit.smem_bytes) + kernel.built->info.static_smem_bytes;
    kernel.blocks_per_sm = gpu::blocks_per_sm(gpu::typical_device(kernel.promise.arch), kernel.built->info.registers,
                                              static_cast<int>(unit.threads), kernel.smem_bytes);
    const std::lock_guard lock(mutex);
    ++done;
    if (progress) progress(done);
  });
  return kernels;
}

std::vector<std::string> broken_ceilings(const PromisedKernel& kernel) {
  const auto& [promise, built, smem_bytes, blocks] = kernel;
  std::vector<std::string> broken;
  const auto complain = [&](const std::string& what) {
    broken.push_back(
        fmt::format("{} '{}' for {} with {}: {}", promise.kernel, promise.problem, promise.arch, promise.config, what));
  };
  const jit::BuildReport& report = built->report;
  if (report.spills())
    complain(fmt::format("spills {} bytes and loads {}", report.spill_store_bytes, report.spill_load_bytes));
  if (built->info.stack_bytes > 0) complain(fmt::format("has a stack frame of {} bytes", built->info.stack_bytes));
  if (report.ignored_setmaxnreg) complain("setmaxnreg is ignored");
  if (report.serialised_wgmma) complain("wgmma is serialised");
  if (built->info.registers > promise.ceilings.registers)
    complain(fmt::format("{} registers, at most {} are allowed", built->info.registers, promise.ceilings.registers));
  const int smem_limit = std::min(promise.ceilings.smem_bytes, gpu::typical_device(promise.arch).smem_per_block_bytes);
  if (smem_bytes > smem_limit)
    complain(fmt::format("{} bytes of shared memory, at most {} are allowed", smem_bytes, smem_limit));
  if (blocks < promise.ceilings.blocks_per_sm)
    complain(fmt::format("{} blocks per SM, at least {} are asked for", blocks, promise.ceilings.blocks_per_sm));
  if (promise.unit.role_registers > 65536)
    complain(fmt::format("its roles want {} registers, an SM has 65536", promise.unit.role_registers));
  if (static_cast<uint32_t>(built->info.params_bytes) != promise.unit.params_bytes)
    complain(fmt::format("takes {} bytes of parameters, the host passes {}", built->info.params_bytes,
                         promise.unit.params_bytes));
  return broken;
}

std::string resources_table(const std::vector<PromisedKernel>& kernels) {
  std::string text = fmt::format(
      "# What the promised kernels use\n\nMade by `attune pack --resources docs/kernel-resources.md` from "
      "kernels/manifest.toml with NVRTC {}; for reading only.\nThe ceilings that bind are in the manifest. Blocks per "
      "SM "
      "are for a typical card of the architecture.\n\n"
      "| kernel | problem | architecture | config | threads | registers | shared memory | blocks per SM | code |\n"
      "|---|---|---|---|---|---|---|---|---|\n",
      jit::measured_nvrtc_version);
  for (const PromisedKernel& kernel : kernels) {
    const jit::DeviceUnit& unit = kernel.promise.unit;
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} KB |\n", kernel.promise.kernel,
                        kernel.promise.problem, kernel.promise.arch, unit.config, unit.threads,
                        kernel.built->info.registers, kernel.smem_bytes, kernel.blocks_per_sm,
                        (kernel.built->info.code_bytes + 1023) / 1024);
  }
  return text;
}

std::vector<std::string> write_packs(const std::vector<PromisedKernel>& kernels, const std::string& directory) {
  std::map<std::string, std::map<jit::Key, jit::PackEntry>> entries;  // by architecture
  for (const PromisedKernel& kernel : kernels) {
    if (!kernel.promise.packed) continue;
    if (!kernel.built->measured)
      fail(ATTUNE_COMPILE_ERROR, "a pack is made with NVRTC {}, and this one is {}", jit::measured_nvrtc_version,
           kernel.built->compiler_version);
    entries[kernel.promise.arch][kernel.built->key] = {label_of(kernel.promise.unit), kernel.built->cubin};
  }
  std::filesystem::create_directories(directory);
  std::vector<std::string> files;
  for (const auto& [arch, pack] : entries) {
    files.push_back(directory + "/" + jit::pack_file_name(arch));
    jit::write_pack(files.back(), arch, jit::measured_nvrtc_version, pack);
  }
  return files;
}

}  // namespace attune::lab
