// Which instruction-set levels this machine has, and which of them may be used.
#pragma once

#include <span>
#include <string>

#include "cpu/level/level.hpp"

namespace attune::cpu {

// Every level this library was built with, worst first.
std::span<const Level* const> levels();

// Why a level cannot be used here, as a clause, or "": the machine lacks it, or ATTUNE_CPU_ISA (portable, avx2, avx512,
// avx512bf16, amx) names a lower one. Asking this of AMX asks the system for its use.
std::string refusal(const Level& level);

// Whether a level may be chosen without being asked for. The one that multiplies pairs of bf16 in vectors must be asked
// for where it does less than float32 vectors do: on Intel's CPUs half as much, on AMD's twice as much. ATTUNE_CPU_ISA
// asks for the level it names.
bool is_selectable(const Level& level);

// The best selectable level without a refusal.
const Level& best_level();

// The level that multiplies pairs of bf16 in vectors, or NULL where it cannot be used.
const Level* pair_level();

}  // namespace attune::cpu
