// Runs an entrant on the tensors of a check, as the rounds will call it: through its C functions, on a GPU as a graph.
// Red zones around every buffer and around the workspace, inputs that must not change: what the check sees of this
// library's kernels it sees of others too.
#pragma once

#include <functional>
#include <memory>

#include "lab/check/executor.hpp"
#include "lab/measure/gpu.hpp"
#include "lab/trial/entrant.hpp"

namespace attune::lab {

// `gpu`: nullptr on the CPU. `at_work` is told when the entrant's own code begins and ends.
std::unique_ptr<Executor> make_callee_executor(Entrant entrant, Gpu* gpu, std::function<void(bool)> at_work);

}  // namespace attune::lab
