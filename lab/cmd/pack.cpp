// attune pack: compiles the promised kernels, holds them to their ceilings, and freezes them into one file per
// architecture.
#include <fmt/format.h>

#include <filesystem>

#include "core/error.hpp"
#include "lab/cmd/commands.hpp"
#include "lab/output.hpp"
#include "lab/pack/promised.hpp"
#include "lab/progress.hpp"

namespace attune::lab {
namespace {

struct PackOptions {
  std::string manifest = "kernels/manifest.toml", directory, resources;
  std::vector<std::string> archs;
};

int pack(const PackOptions& options) {
  std::vector<Promise> promises = read_manifest_file(options.manifest);
  if (!options.archs.empty())
    std::erase_if(promises, [&](const Promise& promise) {
      return std::ranges::find(options.archs, promise.arch) == options.archs.end();
    });
  if (promises.empty()) fail(ATTUNE_INVALID_ARGUMENT, "the manifest promises nothing for these architectures");

  if (!options.directory.empty()) try_folder("--out", options.directory);
  if (!options.resources.empty()) try_folder_of("--resources", options.resources);

  jit::StoreOptions store_options = jit::store_options_from_environment();
  store_options.pack_directories = {};  // what the compiler said about a kernel is not in a pack
  jit::Store store(store_options);
  std::vector<PromisedKernel> kernels;
  {
    ProgressLine progress(static_cast<int64_t>(promises.size()));
    progress.say("compiling");
    kernels = compile_promised(std::move(promises), store, [&](size_t) { progress.step("compiling"); });
  }

  size_t broken = 0;
  for (const PromisedKernel& kernel : kernels)
    for (const std::string& line : broken_ceilings(kernel)) {
      remark("{}\n", line);
      ++broken;
    }
  if (!options.resources.empty()) write_file(options.resources, resources_table(kernels));
  fmt::print("{} kernels compiled, {} ceilings broken\n", kernels.size(), broken);
  if (broken > 0) return exit_failed_check;
  if (!options.directory.empty())
    for (const std::string& file : write_packs(kernels, options.directory))
      fmt::print("{}: {} kernels, {} KB\n", file, jit::Pack(file).size(), std::filesystem::file_size(file) / 1024);
  return exit_ok;
}

}  // namespace

void add_pack(CLI::App& app, int& status) {
  auto options = std::make_shared<PackOptions>();
  CLI::App* command = app.add_subcommand("pack", "compile the promised kernels and freeze them into files");
  command->add_option("--manifest", options->manifest, "which kernels are promised")->capture_default_str();
  command->add_option("--out", options->directory, "where the packs go; without it only the ceilings are checked");
  command->add_option("--arch", options->archs, "only these architectures");
  command->add_option("--resources", options->resources, "write the table of registers and shared memory here");
  command->footer(
      "examples:\n"
      "  attune pack                                     do the promised kernels stay under their ceilings?\n"
      "  attune pack --out build                         packs beside build/libattune.so, where it looks for them\n"
      "  attune pack --resources docs/kernel-resources.md");
  command->callback([options, &status] { status = pack(*options); });
}

}  // namespace attune::lab
