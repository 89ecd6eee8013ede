// Whether AMX can be used here, which only trying can tell.
#pragma once

#include <string>

namespace attune::cpu {

// Why it cannot, as a clause, or "". The first call asks the system to let this process use AMX.
const std::string& amx_absence();

}  // namespace attune::cpu
