// Shared memory by address: of the CTA itself, and of the others of its cluster.
#include "tests/sm90_emulated/state.hpp"

namespace attune::emulator {

void* dynamic_shared_memory() { return current->warp->cta->memory; }

uint32_t shared_address(const void* pointer) {
  const Cta& cta = *current->warp->cta;
  const auto* const at = static_cast<const char*>(pointer);
  if (at < cta.memory || at > cta.memory + cta.smem_bytes)
    fail("takes the address in shared memory of something that does not lie in that of its CTA");
  return first_address + static_cast<uint32_t>(at - cta.memory);
}

uint32_t remote_address(uint32_t address, uint32_t cta) {
  if (cta >= machine->ctas.size())
    fail(fmt::format("maps an address to CTA {} of a cluster of {}", cta, machine->ctas.size()));
  return address % window_step + (cta + 1) * window_step;
}

void* shared_pointer(uint32_t address, size_t bytes) {
  const uint32_t window = address / window_step, offset = address % window_step;
  Cta& cta = window == 0 ? *current->warp->cta : machine->ctas[window - 1];
  if (offset < first_address || offset + bytes > first_address + cta.smem_bytes)
    fail(fmt::format("reaches shared memory 0x{:x}, which is outside the {} bytes of {}", offset, cta.smem_bytes,
                     cta.name()));
  if (!cta.started) fail(fmt::format("reaches the shared memory of {}, which has not started", cta.name()));
  if (cta.live == 0) fail(fmt::format("reaches the shared memory of {}, which has ended", cta.name()));
  return cta.memory + (offset - first_address);
}

Range range_of(const void* pointer, size_t bytes) {
  const auto* const at = static_cast<const char*>(pointer);
  for (const Cta& cta : machine->ctas)
    if (at >= cta.memory && at + bytes <= cta.memory + cta.smem_bytes) {
      const auto begin = first_address + static_cast<uint32_t>(at - cta.memory);
      return {&cta, begin, begin + static_cast<uint32_t>(bytes)};
    }
  fail(fmt::format("{} bytes do not lie in shared memory", bytes));
}

std::string text_of(const Range& range) {
  return fmt::format("shared memory 0x{:x}..0x{:x}", range.begin - first_address, range.end - first_address);
}

uint32_t cluster_rank() { return current->warp->cta->rank; }
uint32_t cluster_size() { return static_cast<uint32_t>(machine->ctas.size()); }

char* memory_at(uint32_t address, const Cta& cta) { return cta.memory + (address - first_address); }

}  // namespace attune::emulator
