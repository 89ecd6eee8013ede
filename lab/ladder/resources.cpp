#include "lab/ladder/resources.hpp"

#include <fmt/format.h>

#include "lab/ladder/unfused.hpp"

namespace attune::lab {

std::string over_ceiling(const Rung& rung, const KernelResources& resources) {
  if (!resources.complaint.empty()) return resources.complaint;
  if (resources.registers > rung.registers)
    return fmt::format("{} registers, and {} are allowed", resources.registers, rung.registers);
  const int shared = resources.static_shared_bytes + resources.dynamic_shared_bytes;
  if (shared > rung.shared_bytes)
    return fmt::format("{} bytes of shared memory, and {} are allowed", shared, rung.shared_bytes);
  return "";
}

std::vector<RungResources> resources_of_rung(const Rung& rung, const std::string& folder, const jit::Compiler& compiler,
                                             const std::vector<std::string>& archs,
                                             const std::vector<std::string>& dtypes) {
  const std::string path = folder + "/" + file_of_rung(rung.name);
  const KernelFile file = rung.name == unfused_rung ? unfused_softmax(path) : read_kernel_file(path);
  std::vector<RungResources> all;
  for (const std::string& arch : archs)
    for (const std::string& dtype : dtypes)
      for (const int dim : {64, 128}) {
        const Problem problem = parse_problem(fmt::format("fwd b16 h16/16 q2048 k2048 d{} {}", dim, dtype));
        const KernelBuild build = build_kernel(file, problem, arch, compiler);
        RungResources& made = all.emplace_back(RungResources{dtype, dim, {}, {}});
        made.resources = resources_of(build, launch_of(file, problem), gpu::typical_device(arch));
        made.complaint = over_ceiling(rung, made.resources);
      }
  return all;
}

}  // namespace attune::lab
