// kernels/manifest.toml: which kernels are promised, for which architectures, under which ceilings.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jit/unit.hpp"

namespace attune::lab {

struct Ceilings {
  int registers = 255;
  int smem_bytes = 0;
  int blocks_per_sm = 1;  // a floor
};

// One unit for one architecture.
struct Promise {
  std::string kernel;
  std::string problem;  // "" for kernels that take none
  std::string arch;
  bool packed = true;
  Ceilings ceilings;
  std::string config;  // of the kernel, that launches the unit; a launch beside the main one has one of its own
  jit::DeviceUnit unit;
};

// Every unit of every row, each once per architecture. Throws ATTUNE_INVALID_ARGUMENT naming the row and what is wrong.
std::vector<Promise> read_manifest(std::string_view toml);
std::vector<Promise> read_manifest_file(const std::string& path);

}  // namespace attune::lab
