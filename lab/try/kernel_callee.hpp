// The kernel of a .cu file as something that can be called on a GPU.
#pragma once

#include <memory>
#include <string>

#include "lab/measure/callee.hpp"

namespace attune::lab {

// Compiled and loaded for the problem's GPU, whose context is current on this thread. Throws ATTUNE_UNSUPPORTED with
// the reason why the kernel does not take the problem.
std::unique_ptr<Callee> kernel_callee(const std::string& path, const Problem& problem, std::string name);

}  // namespace attune::lab
