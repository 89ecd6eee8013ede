// What a rung needs of a multiprocessor, for every type, head dimension and architecture that it promises, against its
// ceilings. Needs NVRTC, and no GPU.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "lab/ladder/ladder.hpp"
#include "lab/try/kernel_build.hpp"

namespace attune::lab {

struct RungResources {
  std::string dtype;
  int64_t dim = 0;
  KernelResources resources;
  std::string complaint;  // over a ceiling, spills, or cannot be launched; or ""
};

// What is promised, and may be asked for.
inline constexpr std::array ladder_archs{"sm_80", "sm_89", "sm_90a"};
inline constexpr std::array ladder_dtypes{"f16", "bf16"};

// `folder`: where the ladder's files are.
std::vector<RungResources> resources_of_rung(const Rung& rung, const std::string& folder, const jit::Compiler& compiler,
                                             const std::vector<std::string>& archs,
                                             const std::vector<std::string>& dtypes);

// Why a rung may not need what it does, or "".
std::string over_ceiling(const Rung& rung, const KernelResources& resources);

}  // namespace attune::lab
