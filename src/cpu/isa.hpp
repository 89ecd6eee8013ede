// Which instruction-set levels this machine has, and which of them may be used.
#pragma once

#include <string>
#include <vector>

#include "cpu/level/level.hpp"

namespace attune::cpu {

// Every level this library was built with, worst first.
const std::vector<const Level*>& levels();

// Why a level cannot be used here, as a clause, or "": the machine lacks it, or ATTUNE_CPU_ISA (portable, avx2, avx512,
// avx512bf16, amx) names a lower one. Asking this of AMX asks the system for its use.
std::string refusal(const Level& level);

// The best level without a refusal.
const Level& best_level();

// The level that multiplies pairs of bf16 in vectors, or NULL where it cannot be used.
const Level* pair_level();

// Whether that does more than float32 vectors do: on AMD's CPUs twice as much, on Intel's half as much.
bool pairs_are_quick();

}  // namespace attune::cpu
