// The stamp of a kernel: what a check or a measurement speaks for. It changes whenever the code that the GPU executes
// does, or the host's side of the kernel, and with nothing else: comments, names and other kernels leave it alone.
#pragma once

#include <string>
#include <string_view>

#include "jit/store.hpp"
#include "lab/evidence/record.hpp"

namespace attune::lab {

// "<code of the cubin>-<host files>", each 32 hex digits.
std::string stamp_of(const jit::Built& built, std::string_view kernel);

// Over the kernel's own .cpp, the headers under kernels/ that it includes, and their .cpp, without comments; as
// compiled into this program.
std::string host_hash_of(std::string_view kernel);

// The name a record knows a unit by: kernel, variant, configuration and architecture.
std::string subject_of(const jit::DeviceUnit& unit, std::string_view arch);

}  // namespace attune::lab
