// The stamp of a kernel: what a check or a measurement speaks for. It changes whenever the code that the GPU executes
// does, or the host's side of the kernel, and with nothing else: comments, names and other kernels leave it alone.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "jit/store.hpp"
#include "lab/evidence/record.hpp"

namespace attune::lab {

// "<code of the cubin>-<host files>", each 32 hex digits.
std::string stamp_of(const jit::Built& built, std::string_view kernel);

// What the hash of the host's side covers: the kernel's own .cpp, the headers under kernels/ that it includes, seen by
// the device or not, and their .cpp. Files named *_cost.hpp, which only say what is best, are left out.
std::set<std::string> host_files_of(std::string_view kernel);

// The lines of a file that the host compiler sees. Those for the device alone show in the cubin.
std::string host_part(std::string_view text);

// Over these parts, without comments, as compiled into this program.
std::string host_hash_of(std::string_view kernel);

// The name a record knows a unit by: kernel, variant, configuration and architecture.
std::string subject_of(const jit::DeviceUnit& unit, std::string_view arch);

}  // namespace attune::lab
