// The same rules as device code: they compile for every architecture, without a stack and without spills.
#include <gtest/gtest.h>

#include <climits>

#include "jit/nvrtc.hpp"
#include "tests/jit/toy.hpp"

namespace attune::jit {
namespace {

constexpr const char* kernel = R"(
#include "kernels/attention/key_blocks.cuh"
#include "kernels/attention/sequence.cuh"
using namespace attune::device;
extern "C" __global__ void attn_kernel(SequenceLengths lengths, Visibility visibility, int tile_rows, int* blocks) {
  const SequenceRows rows = sequence_rows(lengths, blockIdx.y);
  const auto band = band_of<int32_t>(visibility, rows.seq_q, rows.seq_k);
  const int first = blockIdx.x * tile_rows;
  const auto walk = key_blocks<int32_t>(band, first, first + tile_rows - 1, 128);
  int* out = blocks + 4 * (blockIdx.y * gridDim.x + blockIdx.x);
  out[0] = walk.begin, out[1] = walk.whole_begin, out[2] = walk.whole_end, out[3] = walk.end;
}
)";

TEST(RulesOnTheDevice, CompileForEveryArchitecture) {
  SKIP_WITHOUT_NVRTC();
  const Compiler& compiler = find_nvrtc(INT_MAX);
  for (const char* arch : {"sm_80", "sm_89", "sm_90a"}) {
    const Compiled compiled = compiler.compile(kernel, Sources().closure(kernel), arch);
    EXPECT_TRUE(compiled.report.clean()) << arch;
    EXPECT_GT(compiled.report.registers, 0) << arch;
  }
}

}  // namespace
}  // namespace attune::jit
