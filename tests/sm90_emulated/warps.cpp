// Instructions that the lanes of a warp execute together.
#include <algorithm>
#include <bit>
#include <cstring>

#include "tests/sm90_emulated/state.hpp"

namespace attune::emulator {

void warp_collective(const char* instruction, uint32_t mask, void* argument, Combine combine) {
  Lane& lane = *current;
  Warp& warp = *lane.warp;
  const uint32_t bit = 1u << lane.thread % 32;
  if ((mask & bit) == 0) fail(fmt::format("executes {} without being in its mask {:08x}", instruction, mask));
  auto at =
      std::ranges::find_if(warp.collectives, [&](const Collective& c) { return c.arrived != 0 && c.mask == mask; });
  if (at == warp.collectives.end()) {
    at = std::ranges::find(warp.collectives, 0u, &Collective::arrived);
    if (at == warp.collectives.end()) at = warp.collectives.emplace(warp.collectives.end());
    at->instruction = instruction;
    at->mask = mask;
    std::ranges::fill(at->arguments, nullptr);
  }
  if (std::strcmp(at->instruction, instruction) != 0)
    fail(fmt::format("executes {} while other lanes of its warp execute {}", instruction, at->instruction));
  at->arguments[lane.thread % 32] = argument;
  at->arrived |= bit;
  if (at->arrived != mask) {
    const uint32_t all = mask;
    machine->wait([instruction, all, &warp] {
      uint32_t here = 0;
      for (const Collective& c : warp.collectives)
        if (c.mask == all) here = c.arrived;
      return fmt::format("the {} lanes of its warp that have not come to {}", std::popcount(all & ~here), instruction);
    });
    return;
  }
  combine(at->arguments);
  at->arrived = 0;
  for (Lane& other : warp.lanes)
    if (mask >> other.thread % 32 & 1 && &other != &lane) machine->wake(other);
}

void warp_barrier(uint32_t mask) {
  warp_collective("__syncwarp", mask, nullptr, [](void* const(&)[32]) {});
}

void whole_warp(const char* instruction) {
  warp_collective(instruction, 0xffffffffu, nullptr, [](void* const(&)[32]) {});
}

bool elect_one() {
  whole_warp("elect.sync");
  return current->thread % 32 == machine->elected;
}

}  // namespace attune::emulator
