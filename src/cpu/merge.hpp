// Joins partial attention results over disjoint key sets.
#pragma once

#include "attune/attune.h"
#include "cpu/threads.hpp"

namespace attune::cpu {

// The descriptor has been checked.
void merge(const attune_merge_desc& desc, const attune_merge_args& args, Threads& threads);

}  // namespace attune::cpu
