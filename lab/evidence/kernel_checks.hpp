// Check evidence of the promised kernels: made on a GPU, and compared with the kernels of today on any machine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lab/evidence/record.hpp"
#include "lab/pack/promised.hpp"

namespace attune::lab {

// The problems that one promised kernel is checked with: several shapes, every feature it takes, hostile inputs.
std::vector<std::string> problems_for(const Promise& promise);

// Runs each promised kernel of this GPU's architecture, with exactly its configuration, through the gate. `progress` is
// told what comes next.
nlohmann::json check_promised_kernels(const std::vector<PromisedKernel>& kernels, int device_index,
                                      const std::function<void(const std::string&)>& progress);

struct KernelFreshness {
  std::string subject;
  Freshness freshness = Freshness::unknown;
  std::string record;  // the newest file that speaks of it, "" if none does
};

// For each promised kernel that selection may choose: is there a check that passed, of exactly this code? The check of
// a kernel on sm_90a stands for the builds of the same source for older architectures.
std::vector<KernelFreshness> check_freshness(const std::vector<PromisedKernel>& kernels, const std::string& folder);

}  // namespace attune::lab
