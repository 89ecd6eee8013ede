// Programmatic edges of a captured CUDA graph: counted, or made into ordinary ones. A kernel that asks for programmatic
// launch brings such edges into a capture; the default column of every table is without them.
#pragma once

#include "gpu/driver.hpp"

namespace attune::lab {

// 0 with a driver older than CUDA 12.3, which knows no such edges.
int count_programmatic_edges(const gpu::Driver& driver, gpu::CUgraph graph);

void make_edges_full(const gpu::Driver& driver, gpu::CUgraph graph);

}  // namespace attune::lab
