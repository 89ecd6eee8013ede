// The scheduler: which fibre runs next, and when what is asynchronous happens.
#include "tests/sm90_emulated/machine.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>

#include "tests/sm90_emulated/state.hpp"

namespace attune::emulator {
namespace {

constexpr size_t stack_bytes = 96 << 10, window_bytes = 256 << 10;
constexpr uint64_t stack_seal = 0x7374'6163'6b21'2121;

// Memory that is kept from launch to launch; what is never touched costs nothing.
class Arena {
 public:
  explicit Arena(size_t piece_bytes) : piece_bytes_(piece_bytes) {}
  char* piece(size_t i) {
    while (i >= pieces_.size()) {
      void* memory = mmap(nullptr, piece_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) throw std::bad_alloc();
      pieces_.push_back(static_cast<char*>(memory));
    }
    return pieces_[i];
  }

 private:
  size_t piece_bytes_;
  std::vector<char*> pieces_;
};
Arena stacks(stack_bytes), windows(window_bytes);

// Three warps, one after the other, "warps 4, 5 and 7", are told as one.
std::string list_of(const std::vector<std::string>& items) {
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) text += (i == 0 ? "" : i + 1 == items.size() ? " and " : ", ") + items[i];
  return text;
}

std::string lanes_of(uint32_t mask, size_t lanes) {
  if (static_cast<size_t>(std::popcount(mask)) == lanes) return "";
  std::vector<std::string> names;
  for (int i = 0; i < 32; ++i)
    if (mask >> i & 1) names.push_back(std::to_string(i));
  if (names.size() > 4) return fmt::format(" ({} lanes)", names.size());
  return fmt::format(" (lane {})", list_of(names));
}

}  // namespace

std::string where() {
  if (current == nullptr) return "the machine";
  return fmt::format("{} thread {} (warp {})", current->warp->cta->name(), current->thread, current->thread / 32);
}

void fail(const std::string& what) { throw Failure(fmt::format("{} {}", where(), what)); }
void note(const std::string& kind, const std::string& what) {
  machine->record(kind, fmt::format("{} {}", where(), what));
}

void Machine::record(const std::string& kind, std::string what) {
  constexpr unsigned enough = 3;
  if (notes_of_kind[kind]++ < enough) notes.push_back(std::move(what));
}

Machine::Machine(const Launch& launch, uint64_t seed, const std::function<void()>& of_thread)
    : shape(launch), body(of_thread), random(static_cast<std::mt19937::result_type>(seed)) {
  // The first are the worst: an early copy overwrites what a late product still reads, and a late copy is not there yet
  // for an early one.
  static constexpr Timing table[][2] = {{Timing::at_once, Timing::at_last},
                                        {Timing::at_last, Timing::at_once},
                                        {Timing::whenever, Timing::whenever},
                                        {Timing::at_last, Timing::at_last},
                                        {Timing::whenever, Timing::at_last}};
  copies = table[seed % std::size(table)][0];
  products = table[seed % std::size(table)][1];
  some_start_late = seed % 2 == 1;
  elected = static_cast<unsigned>(random() % 32);
}

void Machine::build(Index first_cta) {
  const unsigned count = shape.cluster.x * shape.cluster.y * shape.cluster.z;
  ctas.clear();
  ctas.resize(count);
  ready.clear();
  live = 0;
  size_t stack = 0;
  for (unsigned rank = 0; rank < count; ++rank) {
    Cta& cta = ctas[rank];
    cta.rank = rank;
    cta.index = {first_cta.x + rank % shape.cluster.x, first_cta.y + rank / shape.cluster.x % shape.cluster.y,
                 first_cta.z + rank / shape.cluster.x / shape.cluster.y};
    cta.threads = cta.live = shape.threads;
    live += shape.threads;
    cta.smem_bytes = shape.smem_bytes;
    cta.memory = windows.piece(rank);
    // Nothing may rely on what is in shared memory at first.
    std::fill_n(reinterpret_cast<uint32_t*>(cta.memory), window_bytes / 4, 0xffffffffu);
    const bool late = some_start_late && chance(2);
    if (late) held_back.push_back(&cta);
    cta.warps.resize(shape.threads / 32);
    cta.warpgroups.resize((shape.threads + 127) / 128);
    for (unsigned w = 0; w < cta.warps.size(); ++w) {
      Warp& warp = cta.warps[w];
      warp.cta = &cta;
      warp.warpgroup = &cta.warpgroups[w / 4];
      warp.warpgroup->cta = &cta;
      warp.warpgroup->first_thread = w / 4 * 128;
      warp.lanes.resize(32);
      warp.runnable = 0xffffffffu;
      warp.queued = true;
      if (!late) ready.push_back(&warp);
      for (unsigned i = 0; i < 32; ++i) {
        Lane& lane = warp.lanes[i];
        lane.thread = w * 32 + i;
        lane.warp = &warp;
        lane.registers = shape.registers_per_thread;
        lane.cluster_phase = cluster_phase;
        char* const memory = stacks.piece(stack++);
        std::memcpy(memory, &stack_seal, sizeof stack_seal);
        lane.fibre.start(memory, stack_bytes, enter);
      }
    }
  }
}

void Machine::run_cluster(Index first_cta) {
  build(first_cta);
  schedule();
  finish_cluster();
}

void Machine::enter() {
  try {
    machine->body();
    Lane& lane = *current;
    lane.finished = true;
    --lane.warp->cta->live;
    --machine->live;
    ++machine->progress;
    note_unsettled(lane);
    for (auto& group : lane.store_groups) lane.open_stores.insert(lane.open_stores.end(), group.begin(), group.end());
    leave_barriers(lane);
  } catch (...) {
    machine->failure = std::current_exception();
  }
  machine->wait({});  // for nothing that will come
  std::abort();
}

void Machine::switch_to(Lane& lane, Fibre& from) {
  current = &lane;
  thread_index.x = lane.thread;
  lane.fibre.switch_from(from);
}

// Lanes hand over to one another, and to the scheduler only after the last.
void Machine::leave_to_others(Lane& lane) {
  Warp& warp = *lane.warp;
  if (warp.runnable == 0) answer(warp);
  if (warp.runnable == 0 || failure) {
    scheduler.switch_from(lane.fibre);
    return;
  }
  const int turn = static_cast<int>(lane.thread % 32);
  const unsigned next = (turn + std::countr_zero(std::rotr(warp.runnable, turn))) % 32;
  if (&warp.lanes[next] != &lane) switch_to(warp.lanes[next], lane.fibre);
}

void Machine::wait(std::function<std::string()> what) {
  Lane& lane = *current;
  lane.waits_for = std::move(what);
  lane.warp->runnable &= ~(1u << lane.thread % 32);
  leave_to_others(lane);
}

bool Machine::ask(std::function<bool()> question) {
  Lane& lane = *current;
  const uint32_t bit = 1u << lane.thread % 32;
  lane.asks = std::move(question);
  lane.warp->runnable &= ~bit;
  lane.warp->asking |= bit;
  leave_to_others(lane);
  return lane.answer;
}

void Machine::answer(Warp& warp) {
  for (Lane& lane : warp.lanes)
    if (warp.asking >> lane.thread % 32 & 1) lane.answer = lane.asks();
  warp.runnable = warp.asking;
  warp.asking = 0;
}

void Machine::pause() { scheduler.switch_from(current->fibre); }

void maybe_pause() {
  if (machine->chance(4)) machine->pause();
}

int64_t clock() {
  machine->pause();
  return machine->ticks += 1000;
}

void Machine::wake(Lane& lane) {
  Warp& warp = *lane.warp;
  lane.waits_for = nullptr;
  warp.runnable |= 1u << lane.thread % 32;
  if (warp.queued) return;
  warp.queued = true;
  ready.push_back(&warp);
}

void Machine::wake_all(std::vector<Lane*>& lanes) {
  for (Lane* lane : lanes) wake(*lane);
  lanes.clear();
}

void Machine::run_warp(Warp& warp) {
  warp.cta->started = true;
  block_index = warp.cta->index;
  const int turn = static_cast<int>(random() % 32);
  const unsigned next = (turn + std::countr_zero(std::rotr(warp.runnable, turn))) % 32;
  switch_to(warp.lanes[next], scheduler);
  current = nullptr;
  if (failure) std::rethrow_exception(failure);
  warp.queued = warp.runnable != 0;
  if (warp.queued) ready.push_back(&warp);
}

void Machine::schedule() {
  while (live > 0) {
    const auto asked = [&](Timing timing) {
      return timing == Timing::at_once || (timing == Timing::whenever && chance(4));
    };
    if (!transports.empty() && asked(copies)) {
      perform_something();
      continue;
    }
    if (asked(products)) {
      bool any = false;
      for (Cta& cta : ctas)
        for (Warpgroup& warpgroup : cta.warpgroups)
          if (warpgroup.has_work()) perform_product(warpgroup), any = true;
      if (any) continue;
    }
    if (!ready.empty()) {
      const size_t i = random() % ready.size();
      Warp& warp = *ready[i];
      ready[i] = ready.back();
      ready.pop_back();
      run_warp(warp);
    } else if (!perform_something() && !start_somebody() && !let_somebody_give_up()) {
      report_deadlock();
    }
  }
}

// Of all that is under way, something; false if nothing is. Copies first, unless they are late themselves: that leaves
// products as late as they can be.
bool Machine::perform_something() {
  const bool copies_first = copies != Timing::at_last || chance(4);
  std::vector<Warpgroup*> busy;
  if (transports.empty() || !copies_first)
    for (Cta& cta : ctas)
      for (Warpgroup& warpgroup : cta.warpgroups)
        if (warpgroup.has_work()) busy.push_back(&warpgroup);
  if (!transports.empty() && busy.empty()) {
    const size_t i = random() % transports.size();
    std::swap(transports[i], transports.back());
    const Transport transport = std::move(transports.back());
    transports.pop_back();
    ++progress;
    transport.perform();
    return true;
  }
  if (busy.empty()) return false;
  perform_product(*busy[random() % busy.size()]);
  return true;
}

bool Machine::start_somebody() {
  if (held_back.empty()) return false;
  for (Warp& warp : held_back.back()->warps) ready.push_back(&warp);
  held_back.pop_back();
  return true;
}

// Hardware's try_wait returns in the end, whatever happens.
bool Machine::let_somebody_give_up() {
  constexpr unsigned rounds = 3;
  rounds_given_up = progress == progress_when_given_up ? rounds_given_up + 1 : 0;
  progress_when_given_up = progress;
  if (rounds_given_up >= rounds) return false;
  bool any = false;
  for (Cta& cta : ctas)
    for (Warp& warp : cta.warps)
      for (Lane& lane : warp.lanes)
        if (lane.may_give_up && lane.waits_for) {
          lane.gave_up = any = true;
          wake(lane);
        }
  return any;
}

void Machine::report_deadlock() {
  std::string text = "deadlock: nothing is under way, and";
  for (Cta& cta : ctas) {
    std::map<std::string, std::vector<std::string>> waiting;
    for (const Warp& warp : cta.warps) {
      std::map<std::string, uint32_t> lanes;
      for (const Lane& lane : warp.lanes)
        if (!lane.finished) lanes[lane.waits_for ? lane.waits_for() : "nothing"] |= 1u << lane.thread % 32;
      for (const auto& [what, mask] : lanes)
        waiting[what].push_back(fmt::format("warp {}{}", &warp - cta.warps.data(), lanes_of(mask, warp.lanes.size())));
    }
    for (const auto& [what, who] : waiting)
      text += fmt::format("\n  {} {} waits for {}", cta.name(), list_of(who), what);
  }
  throw Failure(text);
}

void Machine::finish_cluster() {
  if (!transports.empty())
    throw Failure(fmt::format("the kernel ended while {} was under way", transports.front().what));
  mbarrier_waits.clear();
  for (const std::shared_ptr<Store>& store : stores) advance(*store), advance(*store);
  stores.clear();
  for (size_t i = 0; i < ctas.size() * shape.threads; ++i)
    if (std::memcmp(stacks.piece(i), &stack_seal, sizeof stack_seal) != 0)
      throw Failure(fmt::format("a thread used more than {} bytes of stack", stack_bytes));
}

std::vector<std::string> launch(const Launch& shape, uint64_t seed, const std::function<void()>& body) {
  if (shape.threads % 32 != 0 || shape.threads == 0 || shape.threads > 1024)
    throw Failure(fmt::format("{} threads to a CTA: not a multiple of 32 up to 1024", shape.threads));
  if (shape.smem_bytes > window_bytes - first_address)
    throw Failure(
        fmt::format("{} bytes of shared memory are more than {}", shape.smem_bytes, window_bytes - first_address));
  const jit::Dim3 grid = shape.grid, cluster = shape.cluster;
  if (grid.x % cluster.x != 0 || grid.y % cluster.y != 0 || grid.z % cluster.z != 0)
    throw Failure("the grid is not made of whole clusters");
  Machine own(shape, seed, body);
  struct Restore {
    Machine* before = machine;
    ~Restore() { machine = before, current = nullptr; }
  } const restore;
  machine = &own;
  block_size = {shape.threads, 1, 1};
  grid_size = {grid.x, grid.y, grid.z};
  try {
    for (unsigned z = 0; z < grid.z; z += cluster.z)
      for (unsigned y = 0; y < grid.y; y += cluster.y)
        for (unsigned x = 0; x < grid.x; x += cluster.x) own.run_cluster({x, y, z});
  } catch (const Failure& failure) {
    std::string text = failure.what();
    for (const std::string& line : own.notes) text += "\n  note: " + line;
    throw Failure(text);
  }
  return own.notes;
}

}  // namespace attune::emulator
