// The inside of the machine: what its parts (scheduler, barriers, products, copies) share.
#pragma once

#include <array>
#include <deque>
#include <exception>
#include <list>
#include <memory>
#include <optional>
#include <random>
#include <unordered_map>

#include <fmt/format.h>

#include "tests/sm90_emulated/fibre.hpp"
#include "tests/sm90_emulated/machine.hpp"

namespace attune::emulator {

// Where shared memory begins, so that no address of it is 0; and how far the windows of a cluster's CTAs are apart.
constexpr uint32_t first_address = 1024, window_step = 1 << 24;

struct Cta;
struct Warp;
struct Warpgroup;
struct Chain;

// A piece of the shared memory of a CTA.
struct Range {
  const Cta* cta;
  uint32_t begin, end;  // addresses
  bool overlaps(const Range& other) const { return cta == other.cta && begin < other.end && other.begin < end; }
};

// What the copy engine, or a store into another CTA, has still to do.
struct Transport {
  std::string what;           // for messages: "a copy into shared memory 0x2000..0x4000"
  std::vector<Range> writes;  // of shared memory
  std::function<void()> perform;
};

// A store from shared memory: it reads first, and is seen in global memory later.
struct Store {
  std::function<void()> read, write;
  bool has_read = false, has_written = false;
};

// Registers that a product still reads.
struct HeldRegisters {
  uint32_t product;
  const uint32_t* registers;
  std::array<uint32_t, 4> values;
};

struct Lane {
  unsigned thread = 0;  // of the CTA
  Warp* warp = nullptr;
  Fibre fibre;
  bool finished = false;
  bool answer = false;         // to whether an mbarrier's phase is over
  std::function<bool()> asks;  // that
  bool gave_up = false;        // a try_wait that was told to
  bool may_give_up = false;
  std::function<std::string()> waits_for;  // empty: it does not wait
  unsigned registers = 0;
  unsigned failed_tests = 0;  // of mbarriers, in a row
  uint64_t cluster_phase = 0;
  unsigned votes = 0;  // calls of __syncthreads_or

  // Products, by their number since the start.
  uint32_t products = 0;
  std::vector<uint32_t> groups;  // the number of products up to the end of each committed group
  std::vector<Chain*> chains;    // whose accumulators are this lane's
  std::vector<HeldRegisters> held;
  bool fenced = false;

  std::vector<std::shared_ptr<Store>> open_stores;
  std::vector<std::vector<std::shared_ptr<Store>>> store_groups;
  std::vector<std::function<void()>> open_copies;
  std::vector<std::vector<std::function<void()>>> copy_groups;
};

struct Collective {
  const char* instruction = nullptr;
  uint32_t mask = 0, arrived = 0;
  void* arguments[32] = {};
};

struct Warp {
  Cta* cta = nullptr;
  Warpgroup* warpgroup = nullptr;
  std::vector<Lane> lanes;
  uint32_t runnable = 0;  // a bit for each lane
  uint32_t asking = 0;    // of the others, those that ask a question when all have come as far as they can
  bool queued = false;
  std::vector<Collective> collectives;
};

// Accumulators of one product, or of several in a row, while they are under way.
struct Chain {
  int n;
  std::vector<float> values;  // 64 rows of n
  std::array<float*, 128> registers{};
  std::array<uint32_t, 128> last_product{};  // of each thread, that it has issued on these
  unsigned settled = 0;
};

struct Product {
  ProductForm form;
  uint64_t a, b;
  bool accumulate;
  Chain* chain = nullptr;
  unsigned issued = 0;  // by how many threads
  std::array<std::array<uint32_t, 4>, 128> a_registers;
};

struct Warpgroup {
  Cta* cta = nullptr;
  unsigned first_thread = 0;
  std::deque<Product> products;  // not yet done, oldest first
  uint32_t done = 0;
  std::list<Chain> chains;
  std::vector<std::pair<Lane*, uint32_t>> waiting;  // until so many are done
  bool has_work() const { return !products.empty() && products.front().issued == 128; }
};

struct NamedBarrier {
  unsigned expected = 0, arrived = 0;
  std::vector<const Warp*> arrivals;  // one entry for each thread
  std::vector<Lane*> waiting;
};

struct Cta {
  Index index;
  unsigned rank = 0, threads = 0, live = 0;
  bool started = false;
  char* memory = nullptr;  // shared memory
  size_t smem_bytes = 0;
  std::vector<Warp> warps;
  std::vector<Warpgroup> warpgroups;
  std::array<NamedBarrier, 16> named;
  std::array<bool, 3> votes{};
  unsigned free_registers = 0;  // of those that its threads had at the start
  std::vector<Lane*> awaiting_registers;

  std::string name() const { return fmt::format("CTA ({}, {}, {})", index.x, index.y, index.z); }
};

// When what is asynchronous happens.
enum class Timing { at_once, whenever, at_last };

struct Machine {
  Machine(const Launch& launch, uint64_t seed, const std::function<void()>& body);
  void run_cluster(Index first_cta);

  // The fibre that runs waits until it is woken. `what` says for what.
  void wait(std::function<std::string()> what);
  void pause();  // it could go on
  // Lanes that run at the same time get the same answer, as lanes that are converged do.
  bool ask(std::function<bool()> question);
  void wake(Lane& lane);
  void wake_all(std::vector<Lane*>& lanes);
  void record(const std::string& kind, std::string what);  // a note: of each kind the first few

  bool chance(unsigned one_in) { return random() % one_in == 0; }

  const Launch shape;
  const std::function<void()>& body;
  std::mt19937 random;
  Timing copies, products;
  bool some_start_late;
  unsigned elected;  // the lane that elect_one chooses

  std::vector<Cta> ctas;
  std::vector<Warp*> ready;
  std::vector<Cta*> held_back;  // which start when nothing else can go on
  std::vector<Transport> transports;
  std::vector<std::shared_ptr<Store>> stores;
  std::unordered_map<const uint64_t*, std::vector<std::pair<Lane*, uint32_t>>> mbarrier_waits;
  uint64_t cluster_phase = 0;
  unsigned cluster_arrived = 0;
  std::vector<Lane*> at_cluster_barrier;
  unsigned live = 0;
  uint64_t progress = 0, progress_when_given_up = 0;
  unsigned rounds_given_up = 0;
  int64_t ticks = 0;
  Fibre scheduler;
  std::exception_ptr failure;
  std::vector<std::string> notes;
  std::unordered_map<std::string, unsigned> notes_of_kind;

 private:
  void build(Index first_cta);
  void schedule();
  bool perform_something();
  void run_warp(Warp& warp);
  void switch_to(Lane& lane, Fibre& from);
  void leave_to_others(Lane& lane);
  static void answer(Warp& warp);
  [[noreturn]] void report_deadlock();
  bool start_somebody();
  bool let_somebody_give_up();
  void finish_cluster();
  static void enter();
  friend void maybe_pause();
};

inline Machine* machine;
inline Lane* current;  // the lane that runs

// All lanes come, as they must to an instruction that is .aligned.
void whole_warp(const char* instruction);

// Parts of the machine that the scheduler drives.
void perform_product(Warpgroup& warpgroup);
void check_overwritten_products(const Range& written, const std::string& by);
void note_unsettled(const Lane& lane);
void leave_barriers(Lane& lane);
void advance(Store& store);
void complete_bytes(uint64_t* barrier, uint32_t bytes);
void check_barrier(const uint64_t* state);
void arrive_from_machine(uint64_t* barrier);

Range range_of(const void* pointer, size_t bytes);  // in the memory of any CTA
char* memory_at(uint32_t address, const Cta& cta);
std::string text_of(const Range& range);
std::string where();  // "CTA (0, 0, 0) thread 5"

}  // namespace attune::emulator
