#include "cpu/isa.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "core/error.hpp"
#include "cpu/amx_absence.hpp"

namespace attune::cpu {
namespace {

// Why the machine cannot run a level, as a clause, or "".
std::string absence_of(const Level& level) {
  bool has = &level == &portable_level;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (&level == &avx2_level) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    const bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
    has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16c;
  }
  if (&level == &avx512_level)
    has = absence_of(avx2_level).empty() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (&level == &avx512bf16_level)
    has = absence_of(avx512_level).empty() && __builtin_cpu_supports("avx512bf16") &&
          __builtin_cpu_supports("avx512vbmi");
  if (&level == &amx_level) {
    const std::string absence = absence_of(avx512_level);
    return absence.empty() ? amx_absence() : absence;
  }
#endif
  return has ? "" : fmt::format("this CPU has no {}", level.name);
}

// The highest level ATTUNE_CPU_ISA allows, as an index into levels().
size_t highest_allowed() {
  const auto all = levels();
  const char* text = std::getenv("ATTUNE_CPU_ISA");
  if (text == nullptr || *text == '\0') return all.size() - 1;
  std::string known;
  for (size_t i = 0; i < all.size(); ++i) {
    if (std::string_view(text) == all[i]->name) return i;
    known += fmt::format("{}{}", i == 0 ? "" : ", ", all[i]->name);
  }
  fail(ATTUNE_INVALID_ARGUMENT, "environment variable ATTUNE_CPU_ISA is '{}'; it must be one of {}", text, known);
}

}  // namespace

std::span<const Level* const> levels() {
  static constexpr const Level* all[] = {
      &portable_level,
#if defined(__x86_64__)
      &avx2_level,     &avx512_level, &avx512bf16_level, &amx_level,
#endif
  };
  return all;
}

std::string refusal(const Level& level) {
  const auto all = levels();
  if (std::string absence = absence_of(level); !absence.empty()) return absence;
  const size_t allowed = highest_allowed();
  const auto index = static_cast<size_t>(std::ranges::find(all, &level) - all.begin());
  if (index > allowed) return fmt::format("ATTUNE_CPU_ISA allows {} at most", all[allowed]->name);
  return {};
}

bool is_selectable(const Level& level) {
#if defined(__x86_64__)
  if (&level == &avx512bf16_level) {
    __builtin_cpu_init();
    return __builtin_cpu_is("amd") || levels()[highest_allowed()] == &level;
  }
#endif
  return true;
}

const Level& best_level() {
  const auto all = levels();
  for (size_t i = all.size(); i-- > 1;)
    if (is_selectable(*all[i]) && refusal(*all[i]).empty()) return *all[i];
  return portable_level;
}

const Level* pair_level() {
#if defined(__x86_64__)
  if (refusal(avx512bf16_level).empty()) return &avx512bf16_level;
#endif
  return nullptr;
}

}  // namespace attune::cpu
