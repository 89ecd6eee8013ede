// Contenders that compute a forward problem: a callee, tensors of its own, and a way of timing it.
#pragma once

#include <memory>

#include "lab/measure/callee.hpp"
#include "lab/measure/contender.hpp"
#include "lab/measure/gpu.hpp"
#include "lab/measure/inputs.hpp"

namespace attune::lab {

// On the CPU, timed by the wall clock.
std::unique_ptr<Contender> cpu_forward_contender(std::unique_ptr<Callee> callee, std::shared_ptr<InputSource> inputs,
                                                 Clock& clock = steady_clock());

// How a GPU contender is run; the name is the protocol's mode.
enum class GpuMode {
  steady,  // one linear graph on one set of buffers: warm caches. The default, and how the peers were recorded
  cold,    // every launch finds its tensors outside the L2: buffer sets in turn
  pdl,     // steady, with the programmatic edges that the calls ask for (ATTUNE_OVERLAP)
  host,    // what a call costs the CPU, the GPU's work left out
};
std::string_view name_of(GpuMode mode);
GpuMode gpu_mode_from(std::string_view name);

std::unique_ptr<Contender> gpu_forward_contender(std::unique_ptr<Callee> callee, std::shared_ptr<InputSource> inputs,
                                                 Gpu& gpu, GpuMode mode, Clock& clock = steady_clock());

// Sets of buffers after which a launch finds nothing of its own in an L2 of that size.
int buffer_sets_for_cold(size_t l2_bytes, size_t bytes_of_set);

}  // namespace attune::lab
