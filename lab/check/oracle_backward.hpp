// What oracles say of gradients, where that is not what they say of a forward pass.
#pragma once

#include <optional>

#include "lab/check/oracle.hpp"

namespace attune::lab {

// Nothing of an oracle that says the same of both.
std::optional<OracleVerdict> consult_gradients(Oracle oracle, const Problem& problem, const OracleRun& run);

}  // namespace attune::lab
