// The Hopper kernels give the same bits every time, also while other work comes and goes on the card: which CTAs run
// where, when data arrives and what lies in the L2 must not show in the result.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "dispatch/context.hpp"
#include "dispatch/kernel.hpp"
#include "gpu/kernel.hpp"
#include "tests/support/card.hpp"

namespace attune::sm90 {
namespace {

using gpu::CUstream;
using gpu::Driver;
using lab::DeviceMemory;
using test::CardCall;

// Keeps the card busy from a stream and a thread of its own: kernels that fill it, and copies that empty the L2.
class OtherWork {
 public:
  OtherWork(const Driver& driver, gpu::CUcontext primary, attune_context* context)
      : call_(driver, "fwd b2 h16/16 q1024 k1024 d128 bf16 causal-br", 99), memory_(driver, 2 * copied_bytes) {
    call_.use_workspace(driver, context);
    thread_ = std::thread([this, &driver, primary, context] {
      driver.check(driver.cuCtxSetCurrent(primary), "cuCtxSetCurrent");
      CUstream stream = nullptr;
      driver.check(driver.cuStreamCreate(&stream, gpu::CU_STREAM_NON_BLOCKING), "cuStreamCreate");
      for (; !stop_; ++rounds_) {
        for (int i = 0; i < 4; ++i) failures_ += attune_forward(context, &call_.desc, &call_.args, stream) != ATTUNE_OK;
        failures_ += driver.cuMemcpyDtoDAsync_v2(memory_.address(), memory_.address() + copied_bytes, copied_bytes,
                                                 stream) != gpu::CUDA_SUCCESS;
        failures_ += driver.cuStreamSynchronize(stream) != gpu::CUDA_SUCCESS;
      }
      driver.cuStreamDestroy_v2(stream);
    });
  }
  ~OtherWork() {
    stop_ = true;
    thread_.join();
  }
  OtherWork(const OtherWork&) = delete;
  OtherWork& operator=(const OtherWork&) = delete;

  int rounds() const { return rounds_; }
  int failures() const { return failures_; }

 private:
  static constexpr size_t copied_bytes = size_t{64} << 20;

  CardCall call_;
  DeviceMemory memory_;
  std::atomic<bool> stop_ = false;
  std::atomic<int> rounds_ = 0, failures_ = 0;
  std::thread thread_;
};

struct Repeated {
  const char* kernel;
  const char* problem;
  size_t config;            // index into space(), which has the best first
  const char* having = "";  // counting only configurations with this
};
constexpr Repeated repeated[] = {
    {"sm90/fwd", "fwd b1 h16/16 q1024 k1024 d64 f16", 0},
    {"sm90/fwd", "fwd b1 h8/2 q1000 k1500 d64 bf16 causal-br", 1},
    {"sm90/fwd", "fwd b2 h4/4 q700 k700 d64 f16 causal-tl", 2},
    {"sm90/fwd", "fwd b1 h8/8 q1024 k1024 d128 bf16", 0},
    {"sm90/fwd", "fwd b1 h8/4 q777 k999 d128 f16 causal-br", 1},
    {"sm90/fwd", "fwd b1 h4/4 q1024 k1024 d256 bf16", 0},
    {"sm90/fwd", "fwd b1 h4/1 q600 k1200 d256 f16 causal-br", 0},
    {"sm90/fwd_small", "fwd b1 h8/8 q512 k512 d64 f16", 0},
    {"sm90/fwd_small", "fwd b1 h8/2 q512 k700 d64 bf16 causal-br", 0},
    {"sm90/fwd_small", "fwd b1 h8/2 q512 k700 d64 bf16 causal-br", 1},
    {"sm90/fwd_small", "fwd b1 h8/2 q512 k700 d64 bf16 causal-br", 2},
    {"sm90/fwd_small", "fwd b1 h16/16 q512 k512 d128 bf16 causal-br", 0},
    {"sm90/fwd_small", "fwd b1 h4/4 q64 k3000 d64 f16", 0, ".cluster = 8,"},
    {"sm90/fwd_small", "fwd b1 h4/4 q64 k3000 d64 f16", 0, ".cluster = 16,"},
    {"sm90/fwd_small", "fwd b1 h32/4 q16 k2000 d128 bf16 causal-br", 0, ".cluster = 16,"},
    {"sm90/fwd_ranged", "fwd b1 h8/8 q700 k700 d128 bf16 causal-br w200,0 sink", 0},
    {"sm90/fwd_ranged", "fwd b3 h4/2 q500 k500 d64 f16 causal-br var=1200,1200", 0},
    {"sm90/fwd_ranged", "fwd b2 h8/2 q1 k8000 d128 bf16 used-k", 0},
    {"sm90/fwd_ranged", "fwd b2 h4/4 q256 k512 d64 f16 bias=1hqk", 0},
    {"sm90/fwd_ranged", "fwd b1 h4/4 q300 k400 d96 f16 mask=b1qk cap20", 0},
};

class HopperRepeats : public test::CardTest {
 protected:
  // What differs of a run's outputs: how many bytes, from where on, and how many of them nobody wrote. "": nothing.
  static std::string difference(const std::byte* found, const std::vector<std::byte>& first, unsigned char poison) {
    if (std::memcmp(found, first.data(), first.size()) == 0) return "";
    size_t count = 0, begin = first.size(), end = 0, unwritten = 0, unwritten_first = 0;
    for (size_t i = 0; i < first.size(); ++i) {
      if (found[i] == first[i]) continue;
      ++count;
      begin = std::min(begin, i);
      end = i + 1;
      unwritten += found[i] == std::byte{poison};
      unwritten_first += first[i] == std::byte{0xff};
    }
    return fmt::format(
        "{} of {} bytes, between {} and {}; {} of them hold what lay there before, {} did in the first run", count,
        first.size(), begin, end, unwritten, unwritten_first);
  }

  // Runs batches on the legacy stream, which the stream of the other work does not wait for, and compares every output
  // with the first. What outputs hold before differs from batch to batch: an element nobody writes is no constant.
  void expect_same_bits(const Repeated& which, Context& own) {
    constexpr int repeats = 1000, batch = 20;
    CardCall call(*driver, which.problem, 7);
    const gpu::GpuKernel& kernel = gpu::find_gpu_kernel(which.kernel);
    const gpu::DeviceProperties& device = own.gpu().properties(0);
    std::vector<std::string> configs = kernel.space(call.problem, device);
    std::erase_if(configs, [&](const std::string& text) { return text.find(which.having) == text.npos; });
    if (configs.empty() && device.clusters_of(16) == 0) return;
    ASSERT_FALSE(configs.empty()) << which.problem << " with " << which.having;
    const auto plan = kernel.plan_with(call.problem, own, configs.at(which.config % configs.size()));
    if (plan->workspace_bytes() > 0) call.use_workspace(*driver, plan->workspace_bytes());

    const size_t o_bytes = call.o.bytes(), bytes = o_bytes + call.lse.bytes();
    ASSERT_EQ(o_bytes % 16 + bytes % 16, 0u) << "outputs beside each other would not be aligned";
    const DeviceMemory outputs(*driver, batch * bytes);
    std::vector<std::byte> found(batch * bytes), first;
    for (int done = 0; done < repeats; done += batch) {
      const auto poison = static_cast<unsigned char>(0xff - done / batch % 2 * 0x55);
      driver->check(driver->cuMemsetD8Async(outputs.address(), poison, batch * bytes, nullptr), "cuMemsetD8Async");
      for (int i = 0; i < batch; ++i) {
        call.args.o = outputs.as<void>(static_cast<size_t>(i) * bytes);
        call.args.lse = outputs.as<float>(static_cast<size_t>(i) * bytes + o_bytes);
        plan->run(operands_of(call.args), nullptr);
      }
      outputs.download(found);
      if (first.empty()) first.assign(found.begin(), found.begin() + static_cast<ptrdiff_t>(bytes));
      for (int i = 0; i < batch; ++i)
        ASSERT_EQ(difference(found.data() + static_cast<size_t>(i) * bytes, first, poison), "")
            << which.kernel << " " << which.problem << ": run " << done + i << " differs from the first";
    }
  }
};

TEST_F(HopperRepeats, AThousandRunsUnderLoadGiveTheSameBits) {
  Context own{attune_options{}};
  if (own.gpu().properties(0).capability() != 90) GTEST_SKIP() << "NO sm_90 GPU: " << own.gpu().properties(0).name;
  OtherWork other(*driver, primary, context);
  for (const Repeated& which : repeated) {
    const int before = other.rounds();
    expect_same_bits(which, own);
    if (HasFatalFailure()) return;
    EXPECT_GT(other.rounds(), before + 10) << which.problem << ": the card was hardly busy with anything else";
  }
  EXPECT_EQ(other.failures(), 0);
}

}  // namespace
}  // namespace attune::sm90
