// Mistakes that the emulator must not let pass: a kernel of one product per tile, right and with each of them planted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpu/tensor_map.hpp"
#include "tests/sm90_emulated/harness.hpp"
#include "tests/sm90_emulated/tensor_map.hpp"
// The harness must come first.
#include "kernels/common/mbarrier.cuh"
#include "kernels/common/named_barrier.cuh"
#include "kernels/common/registers.cuh"
#include "kernels/common/tma.cuh"
#include "kernels/common/wgmma.cuh"

namespace attune::device::planted {

enum class Mistake {
  none,
  no_product_wait,       // accumulators are read while the product is under way
  early_free,            // a stage is given back before the product that reads it is done
  nobody_frees,          // a stage is never given back
  bytes_too_many,        // announced and not loaded
  bytes_too_few,         // loaded and not announced
  wrong_parity,          // of the wait for a tile
  no_tile_wait,          // none at all
  no_fence,              // between ordinary uses of the accumulators and the product
  accumulator_written,   // while the product is under way
  a_written,             // the same with A in registers
  store_not_waited_for,  // the tile that is stored is overwritten at once
  arrival_too_many,
  warp_missing,       // at a named barrier
  lane_missing,       // at a shuffle
  registers_missing,  // more are taken than were given
  barrier_not_made,
  load_left_behind,  // when the kernel ends
};

constexpr int size = 64, tiles = 7, stages = 2, threads = 256, tile_bytes = size * size * 2;

struct Params {
  TensorMap a, b, copy;
  float* out;
  Mistake mistake;
};

struct alignas(1024) SharedStorage {
  uint8_t a[stages][tile_bytes], b[stages][tile_bytes], copy[tile_bytes];
  Mbarrier full[stages], free[stages], spare;
};

inline void produce(const Params& params, SharedStorage& shared) {
  Ring<stages> ring;
  for (int i = 0; i < tiles; ++i, ring.advance()) {
    shared.free[ring.slot].wait(ring.parity ^ 1, "free");
    const int wrong = params.mistake == Mistake::bytes_too_many  ? 16
                      : params.mistake == Mistake::bytes_too_few ? -tile_bytes
                                                                 : 0;
    shared.full[ring.slot].arrive_expect(2 * tile_bytes + wrong);
    tma_load_5d(shared.a[ring.slot], params.a, shared.full[ring.slot], 0, i * size, 0, 0, 0, Evict::normal);
    tma_load_5d(shared.b[ring.slot], params.b, shared.full[ring.slot], 0, i * size, 0, 0, 0, Evict::normal);
  }
}

inline void multiply(const Params& params, SharedStorage& shared, float (&d)[size / 2], bool leader) {
  const auto planted = [&](Mistake mistake) { return params.mistake == mistake; };
  Ring<stages> ring;
  for (int i = 0; i < tiles; ++i, ring.advance()) {
    if (!planted(Mistake::no_tile_wait))
      shared.full[ring.slot].wait(ring.parity ^ (planted(Mistake::wrong_parity) ? 1 : 0), "full");
    if (!planted(Mistake::no_fence)) wgmma_fence();
    const uint64_t a = k_major_descriptor(shared_address(shared.a[ring.slot]));
    const uint64_t b = k_major_descriptor(shared_address(shared.b[ring.slot]));
    for (int step = 0; step < size / 16; ++step)
      Wgmma<size>::ss<Dtype::f16, Major::k>(d, a + 2 * step, b + 2 * step, i + step != 0);
    uint32_t zeros[4] = {0, 0, 0, 0};
    Wgmma<size>::rs<Dtype::f16, Major::k>(d, zeros, b, 1);
    wgmma_commit();
    if (planted(Mistake::early_free) && leader) shared.free[ring.slot].arrive();
    if (planted(Mistake::accumulator_written)) d[3] = 0;
    if (planted(Mistake::a_written)) zeros[1] = 1;
    if (!planted(Mistake::no_product_wait)) wgmma_wait<0>();
    if (!planted(Mistake::early_free) && !planted(Mistake::nobody_frees) && leader) shared.free[ring.slot].arrive();
  }
}

// Two tiles of ones and twos, one after the other from the same place.
inline void store_tiles(const Params& params, SharedStorage& shared) {
  for (int tile = 0; tile < 2; ++tile) {
    for (int i = threadIdx.x; i < tile_bytes / 2; i += 128)
      reinterpret_cast<uint16_t*>(shared.copy)[i] = tile == 0 ? 0x3c00 : 0x4000;
    fence_async_shared();
    barrier_sync(1, 128);
    if (threadIdx.x == 0) {
      tma_store_5d(params.copy, shared.copy, 0, tile * size, 0, 0, 0);
      tma_store_commit();
      if (params.mistake != Mistake::store_not_waited_for) tma_store_wait_read<0>();
    }
    barrier_sync(1, 128);
  }
  if (threadIdx.x == 0) tma_store_wait<0>();
}

inline void run(const Params& params) {
  extern __shared__ uint8_t dynamic_shared[];
  auto& shared = *reinterpret_cast<SharedStorage*>(dynamic_shared);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool leader = elect_one();
  if (warp == 0 && leader) {
    for (int i = 0; i < stages; ++i) shared.full[i].init(1), shared.free[i].init(4);
    if (params.mistake != Mistake::barrier_not_made) shared.spare.init(2);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (warp >= 4) {
    give_registers<40>();
    if (warp == 4 && leader) produce(params, shared);
    return;
  }
  if (params.mistake == Mistake::registers_missing)
    take_registers<224>();
  else
    take_registers<216>();
  if (params.mistake == Mistake::warp_missing && warp != 2) barrier_sync(3, 128);
  if (params.mistake == Mistake::lane_missing && lane != 5) __shfl_xor_sync(0xffffffffu, lane, 1);
  shared.spare.test(0);
  if (params.mistake == Mistake::arrival_too_many && threadIdx.x == 0) {
    shared.spare.arrive();
    shared.spare.arrive_expect(16);
    shared.spare.arrive();
  }
  float d[size / 2];
  for (float& x : d) x = 0;
  multiply(params, shared, d, leader);
  for (int i = 0; i < size / 2; ++i)
    params.out[(warp * 16 + lane / 4 + i / 2 % 2 * 8) * size + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
  store_tiles(params, shared);
  if (params.mistake == Mistake::load_left_behind && threadIdx.x == 0)
    tma_load_5d(shared.a[0], params.a, shared.spare, 0, 0, 0, 0, 0, Evict::normal);
}

}  // namespace attune::device::planted

namespace attune::emulator {
namespace {

using device::planted::Mistake, device::planted::size, device::planted::tiles;
using testing::AnyOf, testing::HasSubstr;

struct Tile {
  alignas(16) uint16_t values[tiles * size][size];
};

// Small integers: products of them are exact.
Tile numbers(int seed) {
  Tile tile;
  for (int row = 0; row < tiles * size; ++row)
    for (int column = 0; column < size; ++column)
      tile.values[row][column] = float_to_f16(static_cast<float>((row * 7 + column * seed + row * column) % 9 - 4));
  return tile;
}

device::TensorMap map_of(Tile& tile) {
  static const gpu::Driver driver = driver_for_maps();
  gpu::TensorMapSpec spec;
  spec.dims = {size, tiles * size, 1, 1, 1};
  spec.stride_bytes = {2 * size, 2 * size, 2 * size, 2 * size};
  spec.box = {size, size, 1, 1, 1};
  spec.rank = 5;
  spec.swizzle = gpu::CU_TENSOR_MAP_SWIZZLE_128B;
  return gpu::tensor_map(driver, spec, tile.values);
}

// What the emulator says with a seed: "", or what is wrong.
std::string outcome(Mistake mistake, uint64_t seed) {
  static Tile a = numbers(3), b = numbers(5);
  Tile copy{};
  std::vector<float> out(size * size), expected(size * size);
  for (int row = 0; row < size; ++row)
    for (int column = 0; column < size; ++column)
      for (int i = 0; i < tiles; ++i)
        for (int k = 0; k < size; ++k)
          expected[row * size + column] +=
              f16_to_float(a.values[i * size + row][k]) * f16_to_float(b.values[i * size + column][k]);
  const device::planted::Params params{map_of(a), map_of(b), map_of(copy), out.data(), mistake};
  const Launch shape{{1, 1, 1}, {1, 1, 1}, device::planted::threads, sizeof(device::planted::SharedStorage), 128};
  std::string notes;
  try {
    for (const std::string& line : launch(shape, seed, [&] { run(params); })) notes += "\n" + line;
  } catch (const Failure& failure) {
    return failure.what();
  }
  std::string text;
  if (out != expected) text += "wrong product";
  for (int row = 0; row < 2 * size; ++row)
    if (copy.values[row][row % size] != (row < size ? 0x3c00 : 0x4000)) {
      text += "wrong copy";
      break;
    }
  return text.empty() ? "" : text + notes;
}

constexpr uint64_t seeds = 5;

TEST(EmulatedMistakes, ARightKernelIsRightInAnyOrder) {
  for (uint64_t seed = 0; seed < 10 * seeds; ++seed) EXPECT_EQ(outcome(Mistake::none, seed), "") << seed;
}

struct Planted {
  const char* name;
  Mistake mistake;
  testing::Matcher<std::string> complaint;
  bool in_every_order = true;
};
void PrintTo(const Planted& planted, std::ostream* out) { *out << planted.name; }

class EmulatedMistakes : public testing::TestWithParam<Planted> {};

TEST_P(EmulatedMistakes, AreFound) {
  unsigned found = 0;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const std::string text = outcome(GetParam().mistake, seed);
    if (text.empty()) continue;
    EXPECT_THAT(text, GetParam().complaint) << "seed " << seed;
    ++found;
  }
  if (GetParam().in_every_order)
    EXPECT_EQ(found, seeds);
  else
    EXPECT_GT(found, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Planted, EmulatedMistakes,
    testing::Values(
        Planted{"no_product_wait", Mistake::no_product_wait,
                AllOf(HasSubstr("wrong product"), HasSubstr("without having waited"))},
        Planted{"early_free", Mistake::early_free,
                AllOf(HasSubstr("wrong product"), HasSubstr("started the load of a box"),
                      HasSubstr("while a product of CTA (0, 0, 0) warpgroup 0")),
                false},
        Planted{"nobody_frees", Mistake::nobody_frees,
                AllOf(HasSubstr("deadlock"), HasSubstr("warp 4 (lane"),
                      HasSubstr("waits for the phase of parity 0 of mbarrier 'free'"),
                      HasSubstr("4 of 4 arrivals and 0 bytes are missing"))},
        Planted{"bytes_too_many", Mistake::bytes_too_many,
                AllOf(HasSubstr("deadlock"), HasSubstr("mbarrier 'full'"), HasSubstr("and 16 bytes are missing"))},
        Planted{"bytes_too_few", Mistake::bytes_too_few,
                AnyOf(HasSubstr("bytes of its phase are missing"), HasSubstr("bytes are missing"),
                      HasSubstr("ended while"), HasSubstr("wrong product"))},
        Planted{"wrong_parity", Mistake::wrong_parity,
                AnyOf(HasSubstr("wrong product"), HasSubstr("mbarrier 'full'"), HasSubstr("arrives at the mbarrier"))},
        Planted{"no_tile_wait", Mistake::no_tile_wait,
                AllOf(HasSubstr("issued a product that reads"), HasSubstr("under way")), false},
        Planted{"no_fence", Mistake::no_fence, HasSubstr("without wgmma_fence")},
        Planted{"accumulator_written", Mistake::accumulator_written,
                HasSubstr("changed accumulator 3 of a product before it waited for it")},
        Planted{"a_written", Mistake::a_written, HasSubstr("changed A registers")},
        Planted{"store_not_waited_for", Mistake::store_not_waited_for, HasSubstr("wrong copy")},
        Planted{"arrival_too_many", Mistake::arrival_too_many,
                HasSubstr("once more than the 2 times it expects; 16 bytes")},
        Planted{"warp_missing", Mistake::warp_missing,
                AllOf(HasSubstr("deadlock"), HasSubstr("warp 0, warp 1 and warp 3"),
                      HasSubstr("named barrier 3: 96 of 128 threads are there"))},
        Planted{"lane_missing", Mistake::lane_missing,
                AnyOf(HasSubstr("shfl.sync.bfly"), HasSubstr("that have not come to"))},
        Planted{"registers_missing", Mistake::registers_missing,
                AllOf(HasSubstr("deadlock"), HasSubstr("96 registers more"), HasSubstr("free"))},
        Planted{"barrier_not_made", Mistake::barrier_not_made, HasSubstr("not initialised")},
        Planted{"load_left_behind", Mistake::load_left_behind, HasSubstr("the kernel ended while the load of a box"),
                false}),
    [](const testing::TestParamInfo<Planted>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace attune::emulator
