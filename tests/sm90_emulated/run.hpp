// What a test asks of the emulator; harness.hpp says how. Free of device code, so that tests can do with this alone.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/kernel.hpp"
#include "lab/check/checker.hpp"

namespace attune::emulator {

// A Hopper card of that many multiprocessors. With few, a CTA of a persistent kernel has several tiles.
gpu::DeviceProperties device_of(int sm_count);

struct Options {
  std::string config{};  // as the recipe writes it; "": the kernel's own choice
  uint64_t seed = 0;     // of the order of everything; seeds 0 to 4 differ the most
  int sm_count = 2;
  std::string scope{};  // of the instance to run instead of that of the recipe, if any
};

// Runs the kernel. Throws Failure, or for a kernel that is not compiled std::runtime_error with the line to add.
// Returns the machine's notes.
std::vector<std::string> run(std::string_view kernel, const Problem& problem, const Operands& operands,
                             const Options& options = {});

// Every configuration that may run the problem, with each of the seeds.
std::vector<Options> every_configuration(std::string_view kernel, const std::string& problem,
                                         std::initializer_list<uint64_t> seeds = {0, 1, 2, 3, 4}, int sm_count = 2);

// Those of them that are compiled for the emulator.
std::vector<Options> compiled_configurations(std::string_view kernel, const std::string& problem,
                                             std::initializer_list<uint64_t> seeds = {0, 1, 2, 3, 4}, int sm_count = 2);

// What the lab's gate says of the kernel's results: "", or for each run what is wrong with it and what the machine
// noted. Inputs and reference are made once.
std::string verdict(std::string_view kernel, const lab::Case& c, std::span<const Options> runs);
std::string verdict(std::string_view kernel, const std::string& problem, std::span<const Options> runs);
std::string verdict(std::string_view kernel, const std::string& problem, const Options& options = {});

}  // namespace attune::emulator
