// The stamp of a kernel: what a check or a measurement speaks for. It changes whenever the code that the GPU executes
// does, or the host's side of the kernel, and with nothing else: comments, names and other kernels leave it alone.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "jit/store.hpp"
#include "lab/evidence/record.hpp"

namespace attune::lab {

// "<code of the cubin>-<host files>", each 32 hex digits.
std::string stamp_of(const jit::Built& built, std::string_view kernel);

// The text of a file, named as in an #include ("kernels/any/fwd.cpp"); nullptr if there is none.
using ReadFile = std::function<const char*(const std::string& path)>;

// Hashes the host's side of a kernel without comments: its own .cpp, the .hpp and .cuh files under kernels/ that it
// includes, directly or not, and the .cpp beside each .hpp. Of a .cuh only what the host compiles counts: device code
// is in the cubin. Files named *_cost.hpp and *_cost.cpp are left out: the figures in them were fitted to measured runs
// and decide which configuration is taken, not what it computes.
std::string host_hash_of(std::string_view kernel, const ReadFile& read);
std::string host_hash_of(std::string_view kernel);  // of the files compiled into this program

// The name a record knows a unit by: kernel, variant, configuration and architecture.
std::string subject_of(const jit::DeviceUnit& unit, std::string_view arch);

}  // namespace attune::lab
