// sm90/fwd_ranged on the emulated machine, through the lab's gate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/convert.hpp"
#include "dispatch/context.hpp"
#include "lab/check/inputs.hpp"
#include "tests/sm90_emulated/run.hpp"

namespace attune::emulator {
namespace {

constexpr const char* kernel = "sm90/fwd_ranged";

// With the configuration that has so many warpgroups and keys per block.
void expect_right(const char* problem, const char* shape) {
  std::vector<Options> runs = compiled_configurations(kernel, problem, {0, 1, 4});
  std::erase_if(runs, [&](const Options& run) { return run.config.find(shape) == std::string::npos; });
  ASSERT_GE(runs.size(), 3u) << problem << ": configurations with " << shape;
  EXPECT_EQ(verdict(kernel, problem, runs), "");
}

constexpr const char* w1_n48 = ".warpgroups = 1, .value_parts = 1, .block_n = 48,";
constexpr const char* w2_n32 = ".warpgroups = 2, .value_parts = 1, .block_n = 32,";
constexpr const char* w2_shared_n32 = ".warpgroups = 2, .value_parts = 2, .block_n = 32,";
constexpr const char* w1_n64 = ".warpgroups = 1, .value_parts = 1, .block_n = 64,";
constexpr const char* w2_n64 = ".warpgroups = 2, .value_parts = 1, .block_n = 64,";
constexpr const char* w2_n80 = ".warpgroups = 2, .value_parts = 1, .block_n = 80,";
constexpr const char* w2_n112 = ".warpgroups = 2, .value_parts = 1, .block_n = 112,";
constexpr const char* w2_n128 = ".warpgroups = 2, .value_parts = 1, .block_n = 128,";

TEST(EmulatedFwdRanged, HeadDims) {
  expect_right("fwd b1 h2/1 q200 k150 d8 f16", w2_n128);
  expect_right("fwd b2 h2/1 q100 k200 d40 f16", w2_n64);
  expect_right("fwd b1 h2/1 q300 k300 d96 bf16 causal-br", w2_n128);
  expect_right("fwd b2 h2/2 q150 k200 d72 bf16 causal-tl", w2_n64);
  expect_right("fwd b1 h2/1 q260 k300 d192/128 bf16 causal-br", w2_n112);
  expect_right("fwd b1 h2/1 q200 k170 d160 f16", w2_n80);
  expect_right("fwd b1 h2/1 q130 k200 d184 bf16 causal-br bhsd", w1_n64);
  expect_right("fwd b1 h2/1 q130 k300 d40/72 f16 w50,20", w1_n64);
}

// Two warpgroups share the columns of O.
TEST(EmulatedFwdRanged, WideHeads) {
  expect_right("fwd b1 h2/1 q100 k150 d512 bf16 causal-br", w2_shared_n32);
  expect_right("fwd b2 h2/1 q70 k90 d264 bf16 causal-br sink bhsd", w2_shared_n32);
  expect_right("fwd b2 h4/1 q1 k1300 d512 f16 used-k", w2_shared_n32);
  expect_right("fwd b1 h2/2 q80 k64 d320/72 f16 bias=1hqk", w2_shared_n32);
  expect_right("fwd b1 h2/2 q80 k60 d320/72 f16 bias=1hqk", w2_shared_n32);
}

TEST(EmulatedFwdRanged, Windows) {
  expect_right("fwd b1 h2/1 q500 k500 d64 bf16 causal-br w127,0", w2_n128);
  expect_right("fwd b1 h2/1 q500 k700 d64 f16 w30,60", w2_n64);
  expect_right("fwd b1 h2/1 q400 k300 d64 f16 causal-tl w0,0", w2_n64);
  expect_right("fwd b1 h2/1 q600 k600 d128 f16 causal-br w200,-1 sink", w2_n128);
  expect_right("fwd b2 h1/1 q300 k100 d128 bf16 causal-br w64,10", w1_n64);
}

TEST(EmulatedFwdRanged, SoftcapsAndSinks) {
  expect_right("fwd b1 h2/1 q200 k400 d256 f16 causal-br w100,0 cap50", w2_n64);
  expect_right("fwd b1 h2/1 q200 k200 d256 bf16 causal-br cap2 sink", w1_n64);
  expect_right("fwd b1 h2/1 q200 k200 d128 f16 causal-br cap30 scale-0.5", w2_n128);
}

TEST(EmulatedFwdRanged, LengthsOnTheDevice) {
  expect_right("fwd b5 h2/1 q300 k300 d64 f16 causal-br var=700,700", w2_n128);
  expect_right("fwd b4 h2/1 q200 k260 d128 bf16 causal-br var=300,500 sink", w2_n128);
  expect_right("fwd b3 h2/1 q100 k300 d128 bf16 used-k", w2_n64);
  expect_right("fwd b4 h2/2 q100 k200 d64 f16 w40,0 cap10 used-q used-k", w1_n64);
  expect_right("fwd b3 h1/1 q150 k150 d256 bf16 causal-br var used-k", w2_n64);
}

// Terms that come by shared memory: vectors over keys, tiles that the copy engine loads, and both.
TEST(EmulatedFwdRanged, BiasesAndMasks) {
  expect_right("fwd b2 h2/2 q150 k152 d64 f16 bias=1hqk", w2_n64);
  expect_right("fwd b2 h2/1 q130 k144 d64 f16 mask=b1qk", w2_n64);
  expect_right("fwd b2 h2/1 q200 k240 d64 f16 causal-br bias=1h1k mask=11qk", w2_n64);
  expect_right("fwd b2 h2/1 q100 k80 d64 f16 bias=bhqk:f32 mask=b11k", w2_n64);
  expect_right("fwd b2 h2/1 q200 k200 d128 bf16 causal-br bias=1h1k", w2_n64);
  expect_right("fwd b1 h2/1 q130 k200 d192/128 bf16 causal-br bias=1h1k", w1_n48);
  expect_right("fwd b5 h2/2 q49 k64 d32 f16 bias=1hqk mask=b11k", w1_n64);
  expect_right("fwd b3 h2/2 q90 k128 d80 bf16 w40,20 bias=bh1k mask=11qk var=150,200", w2_n64);
  expect_right("fwd b2 h8/2 q1 k2000 d128 bf16 mask=b11k used-k", w1_n64);
  expect_right("fwd b1 h2/1 q140 k144 d256 f16 causal-br w50,0 bias=11qk", w2_n32);
}

// Terms that only ordinary loads can bring: strides that the copy engine does not take, two tiles, and logits that are
// more than products times a scale.
TEST(EmulatedFwdRanged, BiasesAndMasksOfAnyStrides) {
  expect_right("fwd b2 h2/2 q150 k150 d64 f16 bias=1hqk", w2_n64);
  expect_right("fwd b2 h2/1 q130 k131 d64 f16 mask=b1qk", w2_n64);
  expect_right("fwd b2 h2/1 q100 k77 d64 f16 bias=bhqk:f32 mask=b11k scale-0.3", w2_n64);
  expect_right("fwd b2 h2/1 q160 k200 d128 bf16 causal-br mask=b11k cap20 sink", w2_n64);
  expect_right("fwd b5 h2/2 q49 k49 d32 f16 bias=1hqk mask=b11k", w1_n64);
  expect_right("fwd b3 h2/2 q90 k120 d80 bf16 w40,20 bias=bh1k mask=11qk var=150,200", w2_n64);
  expect_right("fwd b1 h2/1 q140 k140 d256 f16 causal-br w50,0 bias=11q1", w2_n32);
  expect_right("fwd b1 h2/1 q140 k140 d64 f16 scale-0.125", w2_n64);
}

std::vector<float> outputs_of(lab::Tensors& tensors) {
  std::vector<float> values;
  const auto elements = [&]<typename T>(Operand operand, T) {
    const std::span<std::byte> bytes = tensors[operand].elements();
    return std::span(reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T));
  };
  for (const uint16_t bits : elements(Operand::o, uint16_t{})) values.push_back(f16_to_float(bits));
  // Distances from -inf are no numbers.
  for (const float lse : elements(Operand::lse, 0.f)) values.push_back(std::max(lse, -1e4f));
  return values;
}

std::vector<float> reference_outputs(const std::string& problem, lab::Tensors& tensors) {
  attune_options options{};
  options.struct_size = sizeof options;
  options.kernel = "cpu/reference";
  Context(options).run(parse_problem(problem), tensors.operands(), nullptr);
  return outputs_of(tensors);
}

// Inputs whose maximum moves in blocks that trusted it, with terms that come by shared memory.
TEST(EmulatedFwdRanged, TermsOfHostileInputs) {
  for (const char* problem : {"fwd b2 h2/2 q150 k152 d64 f16 bias=1hqk", "fwd b2 h2/1 q130 k144 d64 f16 mask=b1qk",
                              "fwd b2 h2/2 q200 k400 d128 bf16 causal-br bias=1h1k"})
    for (const lab::InputKind input :
         {lab::InputKind::rising_max, lab::InputKind::far_negative, lab::InputKind::heavy_tailed}) {
      const std::vector<Options> runs = compiled_configurations(kernel, problem, {0, 4});
      EXPECT_EQ(verdict(kernel, {problem, "", input, 1, lab::Storage::dense, std::nullopt}, runs), "") << problem;
    }
}

void expect_like_reference(const std::string& problem, lab::Tensors& tensors) {
  const std::vector<Options> runs = compiled_configurations(kernel, problem, {0, 4});
  ASSERT_FALSE(runs.empty()) << problem;
  const std::vector<float> expected = reference_outputs(problem, tensors);
  for (const Options& options : runs) {
    run(kernel, parse_problem(problem), tensors.operands(), options);
    EXPECT_THAT(outputs_of(tensors), testing::Pointwise(testing::FloatNear(4e-3f), expected)) << problem << "\n"
                                                                                              << options.config;
  }
}

lab::Tensors inputs_of(const std::string& problem) {
  cpu::Threads threads{attune_options{}};
  return lab::make_inputs(parse_problem(problem), lab::InputKind::normal, 1, lab::Storage::dense, threads);
}

// Rows may meet hidden blocks first, last or between, see one key, or none: a maximum that nothing has set is not
// trusted.
TEST(EmulatedFwdRanged, MasksOfManyShapes) {
  using Shows = bool (*)(int row, int key);
  constexpr Shows shapes[] = {
      [](int, int) { return true; },
      [](int, int) { return false; },
      [](int row, int key) { return (row + key) % 2 == 0; },
      [](int row, int key) { return key == row * 7 % 240; },
      [](int row, int key) { return row / 40 == key / 40; },
      [](int row, int key) { return row % 3 == 0 || (key >= 64 && key < 70); },
      [](int row, int key) { return key < 3 || (row > 100 && key > 200); },
  };
  for (const char* problem :
       {"fwd b2 h2/1 q200 k240 d64 f16 mask=11qk", "fwd b2 h2/1 q200 k240 d64 f16 causal-br mask=11qk"}) {
    lab::Tensors tensors = inputs_of(problem);
    for (const Shows shows : shapes) {
      for (int row = 0; row < 200; ++row)
        for (int key = 0; key < 240; ++key)
          tensors[Operand::mask].as<uint8_t>()[row * 240 + key] = shows(row, key) ? 1 + key % 255 : 0;
      expect_like_reference(problem, tensors);
    }
  }
}

// A bias of -inf hides a key, whole blocks too.
TEST(EmulatedFwdRanged, BiasesThatHide) {
  const std::string problem = "fwd b1 h2/2 q150 k304 d64 f16 bias=1hqk";
  lab::Tensors tensors = inputs_of(problem);
  for (const int first_shown : {0, 70, 250, 304}) {
    for (int i = 0; i < 2 * 150 * 304; ++i)
      tensors[Operand::bias].as<uint16_t>()[i] =
          float_to_f16(i % 304 < first_shown || i % 5 == 0 ? -INFINITY : 0.01f * static_cast<float>(i % 100));
    expect_like_reference(problem, tensors);
  }
}

// Keys that a mask hides at an end are not walked. Under every alignment, and with holes, it is the same mask.
TEST(EmulatedFwdRanged, MasksOfPaddedBatches) {
  struct Shown {
    int begin, end, hole;
  };
  for (const char* text : {"fwd b5 h2/1 q150 k200 d64 f16 mask=b11k", "fwd b5 h2/1 q200 k200 d64 f16 mask=b11k"})
    for (const char* causal : {"", " causal-br", " causal-tl"}) {
      const std::string problem = std::string(text) + causal;
      lab::Tensors tensors = inputs_of(problem);
      constexpr Shown shown[] = {{0, 200, -1}, {70, 200, -1}, {0, 91, -1}, {33, 150, 100}, {5, 5, -1}};
      for (int b = 0; b < 5; ++b)
        for (int key = 0; key < 200; ++key)
          tensors[Operand::mask].as<uint8_t>()[b * 200 + key] =
              key >= shown[b].begin && key < shown[b].end && key != shown[b].hole;
      expect_like_reference(problem, tensors);
    }
}

// With few rows and many keys, as when a model decodes: heads of a group are rows of a tile, and keys are split.
TEST(EmulatedFwdRanged, FewRows) {
  expect_right("fwd b1 h4/1 q1 k3000 d128 bf16", w1_n64);
  expect_right("fwd b3 h8/2 q1 k2000 d128 bf16 used-k", w1_n64);
  expect_right("fwd b2 h8/1 q1 k1500 d64 bf16 used-k sink", w1_n64);
  expect_right("fwd b2 h4/2 q1 k2500 d256 bf16 w1100,0 used-k cap50", w1_n64);
  expect_right("fwd b2 h8/2 q8 k1600 d128 f16 causal-br used-k", w1_n64);
  expect_right("fwd b3 h16/2 q5 k1300 d128 f16 causal-br used-q used-k sink", w1_n64);
  expect_right("fwd b5 h4/1 q20 k1400 d128 f16 causal-br var=40,3000", w1_n64);
}

// The same bits, whatever the order in which tiles are listed and things happen.
TEST(EmulatedFwdRanged, ListedTilesGiveTheSameBits) {
  for (const char* problem :
       {"fwd b3 h4/2 q500 k500 d64 f16 causal-br var=1200,1200",
        "fwd b4 h2/1 q200 k260 d128 bf16 causal-br var=300,500 sink", "fwd b3 h8/2 q1 k2000 d128 bf16 used-k"}) {
    const std::vector<Options> runs = compiled_configurations(kernel, problem, {0, 1, 2, 3, 4, 5, 6, 7});
    ASSERT_GE(runs.size(), 8u) << problem;
    std::string config;
    std::vector<std::byte> first;
    for (const Options& options : runs) {
      lab::Tensors tensors = inputs_of(problem);
      run(kernel, parse_problem(problem), tensors.operands(), options);
      std::vector<std::byte> bits;
      for (const Operand output : {Operand::o, Operand::lse})
        bits.insert(bits.end(), tensors[output].elements().begin(), tensors[output].elements().end());
      if (config != options.config) {
        config = options.config;
        first = bits;
      }
      EXPECT_TRUE(bits == first) << problem << " with " << config << " and seed " << options.seed;
    }
  }
}

bool has_whole_red_zones(lab::Buffer& buffer) {
  const std::span<std::byte> whole = buffer.whole(), elements = buffer.elements();
  return std::ranges::all_of(whole, [&](const std::byte& b) {
    return b == std::byte{0xff} || (&b >= elements.data() && &b < elements.data() + elements.size());
  });
}

// Lengths on the device are data: whatever they hold, nothing outside the tensors and the workspace is written.
void expect_stands(const char* problem, const char* shape, const std::vector<int32_t>& offsets, int32_t total_k) {
  cpu::Threads threads{attune_options{}};
  for (const Options& options : compiled_configurations(kernel, problem, {0, 4})) {
    if (options.config.find(shape) == std::string::npos) continue;
    lab::Tensors tensors =
        lab::make_inputs(parse_problem(problem), lab::InputKind::normal, 1, lab::Storage::padded, threads);
    std::ranges::copy(offsets, tensors[Operand::cu_seqlens_q].as<int32_t>());
    for (int b = 0; b < 13; ++b) tensors[Operand::cu_seqlens_k].as<int32_t>()[b] = b % 2 == 0 ? 0 : total_k;
    EXPECT_NO_THROW(run(kernel, tensors.problem, tensors.operands(), options)) << offsets[1];
    for (const Operand output : {Operand::o, Operand::lse}) EXPECT_TRUE(has_whole_red_zones(tensors[output]));
  }
}

TEST(EmulatedFwdRanged, WildLengths) {
  const char* const few = "fwd b12 h8/2 q50 k1500 d128 f16 causal-br var=60,2000";
  expect_stands(few, w1_n64, {0, 60, 0, 60, 0, 60, 0, 60, 0, 60, 0, 60, 0}, 2000);
  expect_stands(few, w1_n64, {0, -7, 2000000000, 3, 50, 1, 1, 1, 1, 1, 1, 1, 1}, 2000);
  expect_stands(few, w1_n64, {-2147483647, 2147483647, 0, 0, 2147483647, 0, 0, 0, 0, 0, 0, 0, 0}, 2000);
  // More tiles than sequences that follow each other could have.
  const char* const many = "fwd b12 h2/1 q300 k300 d64 f16 causal-br var=310,310";
  expect_stands(many, w2_n128, {0, 310, 0, 310, 0, 310, 0, 310, 0, 310, 0, 310, 0}, 310);
}

}  // namespace
}  // namespace attune::emulator
