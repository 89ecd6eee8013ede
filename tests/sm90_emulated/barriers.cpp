// Barriers of every kind, and the register file.
#include <algorithm>
#include <cstring>

#include "tests/sm90_emulated/state.hpp"

namespace attune::emulator {
namespace {

// An mbarrier as it lies in its eight bytes.
struct BarrierState {
  static constexpr unsigned seal = 0x2b5;
  static constexpr uint32_t most_arrivals = (1 << 15) - 1;
  uint64_t magic : 11;
  uint64_t phase : 1;  // the parity of the phase under way
  uint64_t expected : 15;
  uint64_t pending : 15;  // arrivals
  int64_t bytes : 22;     // announced and not delivered
};
static_assert(sizeof(BarrierState) == 8);

BarrierState read(const uint64_t* state) {
  BarrierState barrier;
  std::memcpy(&barrier, state, sizeof barrier);
  return barrier;
}
void write(uint64_t* state, const BarrierState& barrier) { std::memcpy(state, &barrier, sizeof barrier); }

BarrierState checked(const uint64_t* state) {
  range_of(state, sizeof *state);
  const BarrierState barrier = read(state);
  if (barrier.magic != BarrierState::seal)
    fail(fmt::format("uses an mbarrier at {} that is not initialised", text_of(range_of(state, sizeof *state))));
  return barrier;
}

void complete_if_done(uint64_t* state, BarrierState barrier) {
  if (barrier.pending == 0 && barrier.bytes == 0) {
    barrier.phase ^= 1;
    barrier.pending = barrier.expected;
    ++machine->progress;
  }
  write(state, barrier);
  const auto waits = machine->mbarrier_waits.find(state);
  if (waits == machine->mbarrier_waits.end()) return;
  std::erase_if(waits->second, [&](const std::pair<Lane*, uint32_t>& wait) {
    if (wait.second == barrier.phase) return false;
    machine->wake(*wait.first);
    return true;
  });
}

std::string describe(const uint64_t* state, uint32_t parity, const char* name) {
  const BarrierState barrier = read(state);
  return fmt::format(
      "the phase of parity {} of mbarrier '{}' at {}: {} of {} arrivals and {} bytes are missing in its phase of "
      "parity {}",
      parity, name, text_of(range_of(state, sizeof *state)), uint64_t{barrier.pending}, uint64_t{barrier.expected},
      int64_t{barrier.bytes}, uint64_t{barrier.phase});
}

void forget_wait(const uint64_t* state, const Lane& lane) {
  std::erase_if(machine->mbarrier_waits[state], [&](const auto& wait) { return wait.first == &lane; });
}

bool done(const uint64_t* state, uint32_t parity) {
  if (parity > 1) fail(fmt::format("waits for a phase of parity {}", parity));
  checked(state);
  return machine->ask([=] { return read(state).phase != parity; });
}

}  // namespace

void check_barrier(const uint64_t* state) { checked(state); }

void mbarrier_init(uint64_t* state, uint32_t arrivals) {
  if (reinterpret_cast<uintptr_t>(state) % 8 != 0) fail("initialises an mbarrier that is not aligned to 8 bytes");
  if (arrivals < 1 || arrivals > BarrierState::most_arrivals)
    fail(fmt::format("initialises an mbarrier for {} arrivals", arrivals));
  shared_address(state);
  write(state, {BarrierState::seal, 0, arrivals, arrivals, 0});
}

void mbarrier_expect(uint64_t* state, uint32_t bytes) {
  BarrierState barrier = checked(state);
  barrier.bytes += bytes;
  write(state, barrier);
}

void complete_bytes(uint64_t* state, uint32_t bytes) {
  BarrierState barrier = checked(state);
  barrier.bytes -= bytes;
  complete_if_done(state, barrier);
}

void arrive_from_machine(uint64_t* state) {
  BarrierState barrier = checked(state);
  if (barrier.pending == 0)
    fail(
        fmt::format("arrives at the mbarrier at {} once more than the {} times it expects; {} bytes of its phase are "
                    "missing",
                    text_of(range_of(state, sizeof *state)), uint64_t{barrier.expected}, int64_t{barrier.bytes}));
  --barrier.pending;
  complete_if_done(state, barrier);
}

void mbarrier_arrive(uint64_t* state) {
  arrive_from_machine(state);
  maybe_pause();
}

bool mbarrier_test(const uint64_t* state, uint32_t parity) {
  constexpr unsigned patience = 100;
  maybe_pause();
  Lane& lane = *current;
  // A loop around it lets nobody else run.
  const bool over = done(state, parity) || (++lane.failed_tests >= patience && mbarrier_try_wait(state, parity));
  if (over) lane.failed_tests = 0;
  return over;
}

bool mbarrier_try_wait(const uint64_t* state, uint32_t parity) {
  if (done(state, parity)) return true;
  Lane& lane = *current;
  lane.may_give_up = true;
  machine->mbarrier_waits[state].emplace_back(&lane, parity);
  machine->wait([=] { return describe(state, parity, "that is tried"); });
  lane.may_give_up = false;
  const bool over = !lane.gave_up;
  if (!over) forget_wait(state, lane);
  lane.gave_up = false;
  return over;
}

void mbarrier_wait(const uint64_t* state, uint32_t parity, const char* name) {
  if (!done(state, parity)) {
    machine->mbarrier_waits[state].emplace_back(current, parity);
    machine->wait([=] { return describe(state, parity, name); });
  }
}

// Named barriers. Barrier 0 without a number of threads is that of all threads that have not ended.
namespace {

void release_if_full(NamedBarrier& barrier) {
  if (barrier.arrived == 0 || barrier.arrived < barrier.expected) return;
  barrier.arrived = barrier.expected = 0;
  barrier.arrivals.clear();
  ++machine->progress;
  machine->wake_all(barrier.waiting);
}

void arrive_at(uint32_t id, unsigned threads, bool wait) {
  Cta& cta = *current->warp->cta;
  NamedBarrier& barrier = cta.named[id];
  if (barrier.arrived != 0 && barrier.expected != threads)
    fail(fmt::format("comes to named barrier {} with {} threads, others with {}", id, threads, barrier.expected));
  if (std::ranges::count(barrier.arrivals, current->warp) >= 32)
    fail(fmt::format("comes to named barrier {} a second time before the {} threads are there", id, threads));
  barrier.expected = threads;
  ++barrier.arrived;
  barrier.arrivals.push_back(current->warp);
  if (barrier.arrived == threads) {
    release_if_full(barrier);
    return;
  }
  if (!wait) return;
  barrier.waiting.push_back(current);
  machine->wait([id, &barrier] {
    return fmt::format("named barrier {}: {} of {} threads are there", id, barrier.arrived, barrier.expected);
  });
}

}  // namespace

void named_barrier(uint32_t id, uint32_t threads, bool wait) {
  if (id > 15) fail(fmt::format("uses named barrier {}; there are 0..15", id));
  if (threads == 0 || threads % 32 != 0 || threads > current->warp->cta->threads)
    fail(fmt::format("uses named barrier {} for {} threads: not a multiple of 32 up to {}", id, threads,
                     current->warp->cta->threads));
  whole_warp(wait ? "bar.sync" : "bar.arrive");
  arrive_at(id, threads, wait);
  if (!wait) maybe_pause();
}

void block_barrier() { arrive_at(0, current->warp->cta->live, true); }

// Three flags in turn: nobody can still read the one that is cleared for the next call.
bool block_or(bool value) {
  Cta& cta = *current->warp->cta;
  const unsigned call = current->votes++;
  if (value) cta.votes[call % 3] = true;
  cta.votes[(call + 1) % 3] = false;
  block_barrier();
  return cta.votes[call % 3];
}

// The cluster's.
namespace {

void release_cluster_if_full() {
  if (machine->cluster_arrived == 0 || machine->cluster_arrived < machine->live) return;
  machine->cluster_arrived = 0;
  ++machine->cluster_phase;
  ++machine->progress;
  machine->wake_all(machine->at_cluster_barrier);
}

}  // namespace

void cluster_arrive() {
  whole_warp("barrier.cluster.arrive");
  if (current->cluster_phase > machine->cluster_phase) fail("arrives at the cluster barrier twice without waiting");
  current->cluster_phase = machine->cluster_phase + 1;
  ++machine->cluster_arrived;
  release_cluster_if_full();
  maybe_pause();
}

void cluster_wait() {
  whole_warp("barrier.cluster.wait");
  if (current->cluster_phase <= machine->cluster_phase) return;
  machine->at_cluster_barrier.push_back(current);
  machine->wait([] {
    return fmt::format("the cluster barrier: {} of {} threads are there", machine->cluster_arrived, machine->live);
  });
}

void leave_barriers(Lane& lane) {
  NamedBarrier& block = lane.warp->cta->named[0];
  if (block.arrived != 0 && block.expected > lane.warp->cta->live) {
    --block.expected;
    release_if_full(block);
  }
  if (lane.cluster_phase > machine->cluster_phase) --machine->cluster_arrived;  // arrived, and no longer counted
  release_cluster_if_full();
}

// Registers move between warpgroups, by whole warps.
void give_registers(unsigned count) {
  whole_warp("setmaxnreg.dec");
  Lane& lane = *current;
  if (count % 8 != 0 || count < 24 || count > lane.registers)
    fail(fmt::format("keeps {} of its {} registers: not a multiple of 8 from 24", count, lane.registers));
  Cta& cta = *lane.warp->cta;
  cta.free_registers += lane.registers - count;
  lane.registers = count;
  machine->wake_all(cta.awaiting_registers);
}

void take_registers(unsigned count) {
  whole_warp("setmaxnreg.inc");
  Lane& lane = *current;
  if (count % 8 != 0 || count > 256 || count < lane.registers)
    fail(fmt::format("asks for {} registers and has {}: not a multiple of 8 up to 256", count, lane.registers));
  Cta& cta = *lane.warp->cta;
  while (cta.free_registers < count - lane.registers) {
    cta.awaiting_registers.push_back(&lane);
    machine->wait([&cta, &lane, count] {
      return fmt::format("{} registers more: {} are free in the register file", count - lane.registers,
                         cta.free_registers);
    });
  }
  cta.free_registers -= count - lane.registers;
  lane.registers = count;
}

}  // namespace attune::emulator
