// The runtime without a GPU: a driver that takes notes, devices on paper, and a toy kernel added as any other.
#include "gpu/runtime.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "attune/attune.h"
#include "core/error.hpp"
#include "dispatch/context.hpp"
#include "jit/embedded.hpp"
#include "tests/gpu/fake_driver.hpp"
#include "tests/gpu/toy_kernel.hpp"
#include "tests/jit/toy.hpp"

namespace attune::gpu {
namespace {

using testing::HasSubstr;
using testing::Not;

const Registration<toy::ToyKernel> registration;

attune_forward_desc toy_desc(std::string_view text = "fwd b1 h77/77 q64 k64 d32 f16") {
  Problem problem = parse_problem(text);
  problem.device_kind = DeviceKind::cuda;
  return desc_from(problem);
}

attune_status status_of(const std::function<void()>& call, std::string* text = nullptr) {
  try {
    call();
  } catch (const Error& error) {
    if (text != nullptr) *text = error.what();
    return error.status;
  }
  return ATTUNE_OK;
}

class FakeGpu : public testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_NVRTC();
    options.sources = jit::Sources(scratch / "source");
    options.cache_directory = scratch / "cache";
    options.cache_bytes = uint64_t{64} << 20;
    options.find_compiler = jit::find_nvrtc;
    // A checkout of the real device sources with the toy beside them.
    for (const jit::EmbeddedFile* file = jit::embedded_files; file->path != nullptr; ++file)
      jit::write_text(scratch / "source/" + file->path, file->text);
    jit::write_text(scratch / "source/kernels/test/toy.cuh", toy::device_text);
  }

  Context& context() {
    if (made == nullptr) made = std::make_unique<Context>(attune_options{}, std::make_unique<Runtime>(driver, options));
    return *made;
  }

  attune_forward_args args_at(uintptr_t q) {
    attune_forward_args args{};
    args.struct_size = sizeof args;
    args.q = fake::handle<void*>(q);
    args.k = args.v = fake::handle<void*>(0x30000);
    args.o = fake::handle<void*>(0x40000);
    args.lse = fake::handle<float*>(0x60000);
    args.workspace = fake::handle<void*>(0x50000);
    args.workspace_bytes = 512;
    return args;
  }

  jit::Scratch scratch;
  Driver driver = fake::fresh();
  jit::StoreOptions options;
  std::unique_ptr<Context> made;
};

TEST_F(FakeGpu, AddedKernelIsSelectedCompiledAndLaunched) {
  fake::state.params_bytes = sizeof(toy::Params);
  const auto stream = fake::handle<CUstream>(0x77);
  context().forward(toy_desc(), operands_of(args_at(0x20000)), stream);
  ASSERT_EQ(fake::state.launches.size(), 1u);
  const fake::Launched& launched = fake::state.launches[0];
  EXPECT_EQ(launched.grid, (jit::Dim3{4, 1, 1}));
  EXPECT_EQ(launched.cluster, (jit::Dim3{2, 1, 1}));
  EXPECT_EQ(launched.threads, 64u);
  EXPECT_EQ(launched.smem_bytes, 1024u);
  EXPECT_TRUE(launched.programmatic);
  EXPECT_EQ(launched.stream, stream);
  EXPECT_EQ(launched.context, fake::primary(0));
  toy::Params params;
  std::memcpy(&params, launched.params.data(), sizeof params);
  EXPECT_EQ(params.q.words[0], 0x20000u);
  EXPECT_EQ(params.o, fake::handle<void*>(0x40000));
  EXPECT_EQ(params.rows, 64);
  EXPECT_EQ(fake::state.loads_in_capture_mode, 0) << "loading must not disturb other threads' captures";
  EXPECT_TRUE(fake::contexts.empty()) << "the caller's contexts are as before";

  const std::string text = context().explain(problem_from(toy_desc()));
  EXPECT_THAT(text, HasSubstr("kernel: test/toy"));
  EXPECT_THAT(text, HasSubstr("config: .stages = 2"));
  EXPECT_THAT(text, HasSubstr("configurations of test/toy:\n  0.001 us  .stages = 2\n  0.002 us  .stages = 3\n"));
  EXPECT_THAT(text, HasSubstr("workspace: 512 bytes"));
  EXPECT_THAT(text, HasSubstr("from compiled"));
}

TEST_F(FakeGpu, ExplainSaysWhyTheCacheIsNotUsed) {
  EXPECT_THAT(context().explain(problem_from(toy_desc())), Not(HasSubstr("kernel cache")));
  made = nullptr;
  chmod(options.cache_directory.c_str(), 0777);
  const std::string text = context().explain(problem_from(toy_desc()));
  EXPECT_THAT(text, HasSubstr("from compiled"));
  EXPECT_THAT(text, HasSubstr("\nkernel cache: not used: its group or others may write it (mode 0777)"));
}

TEST_F(FakeGpu, SweepMayPlanAnyConfigurationOfTheSpace) {
  const GpuKernel& kernel = find_gpu_kernel("test/toy");
  const Problem problem = problem_from(toy_desc());
  EXPECT_THAT(kernel.plan_with(problem, context(), ".stages = 3")->describe(), HasSubstr("config: .stages = 3"));
  EXPECT_THROW(find_gpu_kernel("test/none"), Error);
}

TEST_F(FakeGpu, MapsAreEncodedOncePerPointer) {
  for (int round = 0; round < 3; ++round)
    for (uintptr_t i = 0; i < 64; ++i)
      context().forward(toy_desc(), operands_of(args_at(0x70000000 + i * 0x10000)), nullptr);
  EXPECT_EQ(fake::state.maps.load(), 64u);
  EXPECT_EQ(fake::state.modules, 1);
}

TEST_F(FakeGpu, MisalignedPointersGoToAKernelThatTakesThem) {
  fake::state.params_bytes = sizeof(void*);
  const attune_forward_desc desc = toy_desc();
  context().forward(desc, operands_of(args_at(0x20000)), nullptr);
  context().forward(desc, operands_of(args_at(0x20002)), nullptr);
  ASSERT_EQ(fake::state.launches.size(), 2u);
  EXPECT_NE(fake::state.launches[0].function, fake::state.launches[1].function);
  EXPECT_NE(fake::state.launches[1].threads, 64u);
  void* q = nullptr;
  std::memcpy(static_cast<void*>(&q), fake::state.launches[1].params.data(), sizeof q);
  EXPECT_EQ(q, fake::handle<void*>(0x20002)) << "never by a copy";

  attune_options only_toy{};
  only_toy.kernel = "test/toy";
  Context forced(only_toy, std::make_unique<Runtime>(driver, options));
  std::string text;
  EXPECT_EQ(status_of([&] { forced.forward(desc, operands_of(args_at(0x20002)), nullptr); }, &text),
            ATTUNE_UNSUPPORTED);
  EXPECT_THAT(text, HasSubstr("it needs pointers aligned to 16 bytes"));
}

TEST_F(FakeGpu, UnpreparedCallInACaptureIsRefused) {
  const auto stream = fake::handle<CUstream>(0x77);
  fake::state.capturing = {stream};
  std::string text;
  EXPECT_EQ(status_of([&] { context().forward(toy_desc(), operands_of(args_at(0x20000)), stream); }, &text),
            ATTUNE_NOT_PREPARED);
  EXPECT_THAT(text, HasSubstr("attune_prepare"));
  EXPECT_THAT(text, HasSubstr("h77/77"));
  EXPECT_EQ(status_of([&] { context().forward(toy_desc(), operands_of(args_at(0x20000)), nullptr); }),
            ATTUNE_NOT_PREPARED)
      << "the legacy stream, while another one captures";
  EXPECT_EQ(fake::state.modules, 0);

  attune_merge_desc merge{};
  merge.struct_size = sizeof merge;
  merge.device_kind = ATTUNE_CUDA;
  merge.parts = merge.batch = merge.heads = merge.rows = merge.dim = 1;
  merge.part_o = merge.o = merge.part_lse = merge.lse = {1, 1, 1};
  const void* part = fake::handle<void*>(0x1000);
  const float* part_lse = fake::handle<float*>(0x2000);
  attune_merge_args merge_args{sizeof merge_args, 0, &part, &part_lse, fake::handle<void*>(0x3000), nullptr};
  EXPECT_EQ(status_of([&] { context().merge(merge, operands_of(merge_args), stream); }), ATTUNE_NOT_PREPARED);

  // After attune_prepare everything may be captured: aligned, misaligned, merge.
  context().prepare(problem_from(toy_desc()));
  const int modules = fake::state.modules;
  EXPECT_EQ(status_of([&] { context().forward(toy_desc(), operands_of(args_at(0x20000)), stream); }), ATTUNE_OK);
  EXPECT_EQ(status_of([&] { context().forward(toy_desc(), operands_of(args_at(0x20002)), stream); }), ATTUNE_OK);
  EXPECT_EQ(status_of([&] { context().merge(merge, operands_of(merge_args), stream); }), ATTUNE_OK);
  EXPECT_EQ(fake::state.modules, modules);
  EXPECT_EQ(fake::state.launches.size(), 3u);
}

TEST_F(FakeGpu, CurrentContextIsLeftAlone) {
  const CUcontext others = fake::handle<CUcontext>(0x5555);
  fake::contexts = {others};
  context().forward(toy_desc(), operands_of(args_at(0x20000)), nullptr);
  EXPECT_EQ(fake::state.launches[0].context, fake::primary(0));
  EXPECT_EQ(fake::contexts, std::vector{others});
  fake::contexts = {fake::primary(0)};
  context().forward(toy_desc(), operands_of(args_at(0x20000)), nullptr);
  EXPECT_EQ(fake::contexts, std::vector{fake::primary(0)});
}

TEST_F(FakeGpu, DriverErrorsNameKernelAndDevice) {
  fake::state.load_result = 209;
  std::string text;
  EXPECT_EQ(status_of([&] { context().forward(toy_desc(), operands_of(args_at(0x20000)), nullptr); }, &text),
            ATTUNE_DEVICE_ERROR);
  EXPECT_THAT(text, HasSubstr("test/toy"));
  EXPECT_THAT(text, HasSubstr("H200"));
  EXPECT_THAT(text, HasSubstr("cuModuleLoadData: a test's error (CUDA_ERROR_TEST)"));
  fake::state.load_result = CUDA_SUCCESS;
  EXPECT_EQ(status_of([&] { context().forward(toy_desc(), operands_of(args_at(0x20000)), nullptr); }), ATTUNE_OK);
}

TEST_F(FakeGpu, OldDriverDoesNotGetKernelsOfANewerCompiler) {
  driver.version = 12040;
  std::string text;
  EXPECT_EQ(status_of([&] { context().forward(toy_desc(), operands_of(args_at(0x20000)), nullptr); }, &text),
            ATTUNE_COMPILE_ERROR);
  EXPECT_THAT(text, HasSubstr("this driver loads kernels of CUDA 12 at most"));
}

TEST_F(FakeGpu, WrongDeviceIndexHasItsOwnStatus) {
  attune_forward_desc desc = toy_desc();
  desc.device_index = 3;
  std::string text;
  EXPECT_EQ(status_of([&] { context().forward(desc, operands_of(args_at(0x20000)), nullptr); }, &text),
            ATTUNE_NO_DEVICE);
  EXPECT_THAT(text, HasSubstr("device_index is 3; there are 1 GPUs"));
}

TEST_F(FakeGpu, TwoDevicesLoadEachTheirOwn) {
  fake::state.devices = {typical_device("sm_90a"), typical_device("sm_80")};
  attune_forward_desc desc = toy_desc("fwd b1 h2/2 q64 k64 d32 f16");
  for (int round = 0; round < 2; ++round)
    for (const int index : {0, 1}) {
      desc.device_index = index;
      context().forward(desc, operands_of(args_at(0x20000)), nullptr);
      EXPECT_EQ(fake::state.launches.back().context, fake::primary(index));
    }
  EXPECT_EQ(fake::state.modules, 2);
  made = nullptr;
  EXPECT_EQ(fake::state.unloaded, 2);
  EXPECT_EQ(fake::state.retained, 0);
}

TEST_F(FakeGpu, ClustersAreCountedOnceAndWhereTheyExist) {
  DeviceProperties cut_down = typical_device("sm_90a");
  cut_down.clusters = {78, 39, 18, 8, 0};
  fake::state.devices = {typical_device("sm_90a"), cut_down, typical_device("sm_80")};
  const CUcontext others = fake::handle<CUcontext>(0x5555);
  fake::contexts = {others};
  {
    Runtime runtime(driver, options);
    EXPECT_EQ(fake::state.retained, 0) << "a device nobody asks about gets no context";
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] { EXPECT_EQ(runtime.properties(0).clusters, (std::array{132, 66, 30, 15, 7})); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(fake::state.ptx_modules, 1);
    EXPECT_EQ(runtime.properties(1).clusters_of(16), 0);
    EXPECT_EQ(runtime.properties(1).clusters_of(8), 8);
    EXPECT_EQ(fake::state.retained, 2);
    EXPECT_EQ(runtime.properties(2).clusters, (std::array{108, 0, 0, 0, 0}));
    EXPECT_EQ(fake::state.retained, 2) << "there are no clusters to count before sm_90";
    EXPECT_EQ(fake::state.ptx_modules, 2);
    EXPECT_EQ(fake::state.loads_in_capture_mode, 0);
  }
  EXPECT_EQ(fake::contexts, std::vector{others});
}

TEST_F(FakeGpu, WithoutACountThereArePortableClustersOnly) {
  fake::state.ptx_result = 221;  // the driver's PTX compiler is not installed
  EXPECT_EQ(Runtime(driver, options).properties(0).clusters, (std::array{132, 66, 33, 16, 0}));
}

TEST_F(FakeGpu, ManyThreadsLoadOnce) {
  Context& shared = context();
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (uintptr_t i = 0; i < 50; ++i)
        shared.forward(toy_desc(), operands_of(args_at(0x100000 * static_cast<uintptr_t>(t + 1) + i * 0x100)), nullptr);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fake::state.modules, 1);
  EXPECT_EQ(fake::state.launches.size(), 400u);
}

TEST(Paper, SelectionWorksAsOnTheDevice) {
  attune_options only_any{};
  only_any.kernel = "any/fwd";
  Context context(only_any, std::make_unique<Runtime>(typical_devices()));
  Problem problem = parse_problem("fwd b1 h8/8 q512 k512 d64 f16");
  problem.device_kind = DeviceKind::cuda;
  for (int i = 0; i < context.gpu().device_count(); ++i) {
    problem.device_index = i;
    const Selection selection = select(problem, context, "any/fwd");
    ASSERT_NE(selection.chosen, nullptr) << selection.why;
    std::string text;
    EXPECT_EQ(status_of([&] { context.plan_for(desc_from(problem)); }, &text), ATTUNE_NO_DEVICE);
    EXPECT_THAT(text, HasSubstr("on paper only"));
  }
}

TEST(NoGpu, TheCallSaysWhy) {
  if (find_driver() != nullptr) GTEST_SKIP() << "there is a GPU";
  attune_context* context = nullptr;
  ASSERT_EQ(attune_create(nullptr, &context), ATTUNE_OK);
  const attune_forward_desc desc = toy_desc();
  EXPECT_EQ(attune_prepare(context, &desc), ATTUNE_NO_DEVICE);
  EXPECT_THAT(attune_last_error(), HasSubstr("CUDA driver"));
  attune_destroy(context);
  EXPECT_THAT(Runtime().describe(), HasSubstr("cuda: " + driver_absence()));
}

}  // namespace
}  // namespace attune::gpu
