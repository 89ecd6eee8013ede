// How calls behave on a real card, through the C interface: captures, streams, threads, huge strides.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "attune/attune.h"
#include "core/problem.hpp"
#include "gpu/kernel.hpp"
#include "gpu/runtime.hpp"
#include "lab/check/device_memory.hpp"
#include "lab/measure/callee.hpp"
#include "tests/support/card.hpp"

namespace attune::gpu {
namespace {

using lab::DeviceMemory;
using test::CardCall;
using CardCalls = test::CardTest;

TEST_F(CardCalls, UnpreparedCallInACaptureIsRefusedAndHarmsNothing) {
  CardCall call(*driver, "fwd b1 h2/2 q64 k64 d64 f16", 1);
  CUstream stream = make_stream();
  CUgraph graph = nullptr;
  driver->check(driver->cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
  EXPECT_EQ(attune_forward(context, &call.desc, &call.args, stream), ATTUNE_NOT_PREPARED) << attune_last_error();
  EXPECT_EQ(driver->cuStreamEndCapture(stream, &graph), CUDA_SUCCESS) << "the capture is still sound";
  driver->cuGraphDestroy(graph);

  // In relaxed mode an unprepared call is refused as well; after attune_prepare it is captured.
  ASSERT_EQ(attune_prepare(context, &call.desc), ATTUNE_OK) << attune_last_error();
  call.use_workspace(*driver, context);
  driver->check(driver->cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
  EXPECT_EQ(attune_forward(context, &call.desc, &call.args, stream), ATTUNE_OK) << attune_last_error();
  ASSERT_EQ(driver->cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  CUgraphExec executable = nullptr;
  driver->check(driver->cuGraphInstantiateWithFlags(&executable, graph, 0), "cuGraphInstantiate");
  driver->check(driver->cuGraphLaunch(executable, stream), "cuGraphLaunch");
  driver->check(driver->cuStreamSynchronize(stream), "cuStreamSynchronize");
  const std::vector<std::byte> replayed = call.result();
  driver->check(driver->cuMemsetD8_v2(call.o.address(), 0xff, call.o.bytes()), "cuMemsetD8");
  ASSERT_EQ(attune_forward(context, &call.desc, &call.args, nullptr), ATTUNE_OK) << attune_last_error();
  EXPECT_EQ(call.result(), replayed);
  driver->cuGraphExecDestroy(executable);
  driver->cuGraphDestroy(graph);
  driver->cuStreamDestroy_v2(stream);
}

TEST_F(CardCalls, LoadingDoesNotDisturbAnotherThreadsCapture) {
  CUstream stream = make_stream();
  driver->check(driver->cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
  std::thread([&] {
    const attune_forward_desc desc = [] {
      Problem problem = parse_problem("fwd b1 h2/2 q64 k64 d192 bf16");
      problem.device_kind = DeviceKind::cuda;
      return desc_from(problem);
    }();
    EXPECT_EQ(attune_prepare(context, &desc), ATTUNE_OK) << attune_last_error();
  }).join();
  CUgraph graph = nullptr;
  EXPECT_EQ(driver->cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  driver->cuGraphDestroy(graph);
  driver->cuStreamDestroy_v2(stream);
}

TEST_F(CardCalls, StreamsAndThreadsDoNotDisturbEachOther) {
  const char* texts[] = {"fwd b2 h4/4 q500 k500 d64 f16 causal-br", "fwd b1 h8/2 q300 k700 d128 bf16",
                         "fwd b1 h2/2 q400 k400 d128 f16", "fwd b1 h4/4 q200 k200 d64 f32"};
  std::vector<std::unique_ptr<CardCall>> calls;
  std::vector<std::vector<std::byte>> right;
  for (int i = 0; i < 8; ++i) {
    calls.push_back(std::make_unique<CardCall>(*driver, texts[i % 4], i));
    calls[i]->use_workspace(*driver, context);
    ASSERT_EQ(attune_forward(context, &calls[i]->desc, &calls[i]->args, nullptr), ATTUNE_OK) << attune_last_error();
    right.push_back(calls[i]->result());
    driver->check(driver->cuMemsetD8_v2(calls[i]->o.address(), 0xff, calls[i]->o.bytes()), "cuMemsetD8");
  }
  driver->check(driver->cuCtxSynchronize(), "cuCtxSynchronize");  // the streams below do not wait for the legacy one
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      // No context is current in a new thread; the library sees to that itself. The stream needs one.
      CUcontext current = nullptr;
      driver->cuCtxGetCurrent(&current);
      EXPECT_EQ(current, nullptr);
      EXPECT_EQ(attune_prepare(context, &calls[i]->desc), ATTUNE_OK);
      driver->check(driver->cuCtxSetCurrent(primary), "cuCtxSetCurrent");
      CUstream stream = make_stream();
      for (int round = 0; round < 50; ++round)
        EXPECT_EQ(attune_forward(context, &calls[i]->desc, &calls[i]->args, stream), ATTUNE_OK) << attune_last_error();
      driver->check(driver->cuStreamSynchronize(stream), "cuStreamSynchronize");
      driver->cuStreamDestroy_v2(stream);
    });
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(calls[i]->result(), right[i]) << texts[i % 4];
}

// Batch entries further apart than 2^31 elements, rows further apart than 2^31 bytes.
TEST_F(CardCalls, OffsetsBeyondThirtyTwoBits) {
  size_t free = 0, total = 0;
  driver->check(driver->cuMemGetInfo_v2(&free, &total), "cuMemGetInfo");
  constexpr int64_t far_batch = (int64_t{1} << 31) + 4096;
  constexpr size_t bytes = (static_cast<size_t>(far_batch) + (1 << 20)) * 2;
  if (free < 4 * bytes) GTEST_SKIP() << "needs " << 4 * bytes << " bytes of device memory, " << free << " are free";

  const std::string text = "fwd b2 h2/2 q96 k96 d64 f16 causal-br";
  CardCall dense(*driver, text, 5);
  for (const char* kernel : {"", "any/fwd"}) {
    attune_options options{};
    options.struct_size = sizeof options;
    options.kernel = *kernel == '\0' ? nullptr : kernel;
    attune_context* own = nullptr;
    ASSERT_EQ(attune_create(&options, &own), ATTUNE_OK);
    dense.use_workspace(*driver, own);
    ASSERT_EQ(attune_forward(own, &dense.desc, &dense.args, nullptr), ATTUNE_OK) << attune_last_error();
    const std::vector<std::byte> right = dense.result();

    attune_forward_desc far = dense.desc;
    attune_forward_args args = dense.args;
    const size_t entry_bytes = right.size() / 2;
    std::vector<DeviceMemory> spaces;
    const auto spread = [&](const DeviceMemory& from, attune_strides& strides) {
      strides.batch = far_batch;
      spaces.emplace_back(*driver, bytes);
      for (size_t b = 0; b < 2; ++b)
        driver->check(driver->cuMemcpyDtoDAsync_v2(spaces.back().address() + b * far_batch * 2,
                                                   from.address() + b * entry_bytes, entry_bytes, nullptr),
                      "cuMemcpyDtoD");
      return spaces.back().as<void>();
    };
    args.q = spread(dense.q, far.q);
    args.k = spread(dense.k, far.k);
    args.v = spread(dense.v, far.v);
    args.o = spread(dense.o, far.o);
    ASSERT_EQ(attune_forward(own, &far, &args, nullptr), ATTUNE_OK) << attune_last_error();
    for (size_t b = 0; b < 2; ++b) {
      std::vector<std::byte> entry(entry_bytes);
      driver->check(driver->cuMemcpyDtoH_v2(entry.data(), spaces[3].address() + b * far_batch * 2, entry_bytes),
                    "cuMemcpyDtoH");
      EXPECT_TRUE(std::equal(entry.begin(), entry.end(), right.begin() + static_cast<ptrdiff_t>(b * entry_bytes)))
          << "kernel '" << kernel << "', batch entry " << b;
    }
    attune_destroy(own);
  }
}

// What a sweep times is the configuration it names.
TEST_F(CardCalls, ConfiguredCalleesRunTheConfiguration) {
  Runtime runtime;
  CardCall call(*driver, "fwd b1 h2/2 q64 k64 d64 f16", 5);
  const std::vector<std::byte> before = call.result();
  for (const std::string& config : find_gpu_kernel("any/fwd").space(call.problem, runtime.properties(0))) {
    const auto callee = lab::configured_callee("sweep", "any/fwd", config, call.problem);
    call.use_workspace(*driver, callee->workspace_bytes());
    EXPECT_THAT(callee->facts().at("explain"), testing::HasSubstr("config: " + config + "\n"));
    driver->check(driver->cuMemcpyHtoD_v2(call.o.address(), before.data(), before.size()), "cuMemcpyHtoD");
    callee->run(operands_of(call.args), nullptr);
    driver->check(driver->cuStreamSynchronize(nullptr), "cuStreamSynchronize");
    EXPECT_NE(call.result(), before) << config;
  }
}

TEST_F(CardCalls, CubinFiguresAreThoseOfTheDriver) {
  Runtime runtime;
  const DeviceProperties& device = runtime.properties(0);
  for (const GpuKernel* kernel : gpu_kernels())
    for (const char* text : {"fwd b1 h2/2 q64 k64 d64 f16", "fwd b1 h2/2 q64 k64 d128 bf16 causal-br"}) {
      Problem problem = parse_problem(text);
      problem.device_kind = DeviceKind::cuda;
      if (!kernel->refusal_on(problem, device).empty()) continue;
      for (const Step& step : kernel->recipe(problem, device, kernel->space(problem, device).at(0)).steps) {
        const LoadedKernel& loaded = runtime.load(step.unit, 0);
        const auto attribute = [&](CUfunction_attribute id) {
          int value = -1;
          driver->check(driver->cuFuncGetAttribute(&value, id, loaded.function), "cuFuncGetAttribute");
          return value;
        };
        EXPECT_EQ(attribute(CU_FUNC_ATTRIBUTE_NUM_REGS), loaded.built->info.registers) << label_of(step.unit);
        EXPECT_EQ(attribute(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES), loaded.built->info.stack_bytes) << label_of(step.unit);
        EXPECT_EQ(attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), loaded.built->info.static_smem_bytes)
            << label_of(step.unit);
        if (step.unit.cluster != jit::Dim3{}) continue;
        int blocks = 0;
        driver->check(driver->cuOccupancyMaxActiveBlocksPerMultiprocessor(
                          &blocks, loaded.function, static_cast<int>(step.unit.threads), step.unit.smem_bytes),
                      "cuOccupancyMaxActiveBlocksPerMultiprocessor");
        EXPECT_EQ(blocks, blocks_per_sm(device, loaded.built->info.registers, static_cast<int>(step.unit.threads),
                                        static_cast<int>(step.unit.smem_bytes) + loaded.built->info.static_smem_bytes))
            << label_of(step.unit);
      }
    }
}

}  // namespace
}  // namespace attune::gpu
