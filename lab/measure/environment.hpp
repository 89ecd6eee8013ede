// Facts about the machine a result comes from, written into every record.
#pragma once

#include "lab/measure/contender.hpp"

namespace attune::lab {

// Processor, logical CPUs this process may use, operating system, compiler, and the version of this program.
Facts host_facts();

}  // namespace attune::lab
