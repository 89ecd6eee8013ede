// Calls that ask to overlap the kernel before them, in chains where each reads what the last one writes: the bits are
// those of calls that are waited for one by one, on a stream and in a captured graph. Neighbours in a chain compute
// with different data, so whoever reads too early, or overwrites what is still read, shows.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cstring>
#include <string_view>
#include <tuple>

#include "gpu/runtime.hpp"
#include "lab/measure/graph_edges.hpp"
#include "tests/support/card.hpp"

namespace attune::sm90 {
namespace {

using gpu::CUgraph;
using gpu::CUgraphExec;
using gpu::CUstream;
using lab::DeviceMemory;
using test::CardCall;

// The writer's output holds q, k and v of the reader, rows after rows. It takes longer than the reader, and leaves room
// beside it for CTAs that start early.
struct Shape {
  const char* writer;
  const char* reader;
};
constexpr Shape shapes[] = {
    {"fwd b1 h8/8 q384 k2048 d64 f16 nolse", "fwd b1 h8/8 q128 k128 d64 f16 nolse"},
    {"fwd b1 h4/4 q1536 k2048 d64 bf16 causal-br nolse", "fwd b1 h4/4 q512 k512 d64 bf16 causal-br nolse"},
    {"fwd b1 h4/4 q768 k2048 d128 bf16 nolse", "fwd b1 h4/4 q256 k256 d128 bf16 nolse"},
};

enum class Keys {
  written_before,      // by the kernel right before the reader
  at_rest,             // by nobody in the chain
  written_two_before,  // by the kernel before the one that writes q
};
constexpr Keys every_source_of_keys[] = {Keys::written_before, Keys::at_rest, Keys::written_two_before};

const char* name_of(Keys keys) {
  switch (keys) {
    case Keys::written_before:
      return "written_before";
    case Keys::at_rest:
      return "at_rest";
    case Keys::written_two_before:
      return "written_two_before";
  }
  return "";
}

class Overlap : public test::CardTest {
 protected:
  void SetUp() override {
    CardTest::SetUp();
    if (IsSkipped()) return;
    gpu::Runtime runtime;
    if (runtime.properties(0).capability() != 90) GTEST_SKIP() << "NO sm_90 GPU: " << runtime.properties(0).name;
    small = context_with("sm90/fwd_small");
  }
  void TearDown() override {
    for (attune_context* own : contexts) attune_destroy(own);
    CardTest::TearDown();
  }

  attune_context* context_with(const char* kernel) {
    attune_options options{};
    options.struct_size = sizeof options;
    options.kernel = kernel;
    attune_context* own = nullptr;
    EXPECT_EQ(attune_create(&options, &own), ATTUNE_OK) << attune_last_error();
    contexts.push_back(own);
    return own;
  }

  attune_context* small = nullptr;
  std::vector<attune_context*> contexts;
};

class Chain {
 public:
  static constexpr int links = 20;

  Chain(const gpu::Driver& driver, const Shape& shape, Keys keys, attune_context* writing, attune_context* reading)
      : driver_(driver),
        writers_{{driver, shape.writer, 1}, {driver, shape.writer, 2}},
        reader_(driver, shape.reader, 3),
        written_(driver, writers_[0].o.bytes()),
        queries_(driver, reader_.o.bytes()),
        outputs_(driver, links * reader_.o.bytes()) {
    const size_t part = reader_.q.bytes();
    EXPECT_EQ(written_.bytes(), 3 * part);
    for (int i = 0; i < links; ++i) {
      CardCall& writer = writers_[i % 2];
      add(writing, writer, ATTUNE_OVERLAP | ATTUNE_KV_READY).args.o = written_.as<void>();
      if (keys == Keys::written_two_before) {
        attune_forward_args& between = add(reading, reader_, ATTUNE_OVERLAP | ATTUNE_KV_READY).args;
        between.q = written_.as<void>();
        between.o = queries_.as<void>();
      }
      const bool ready = keys != Keys::written_before;
      attune_forward_args& args = add(reading, reader_, ATTUNE_OVERLAP | (ready ? ATTUNE_KV_READY : 0u)).args;
      args.q = keys == Keys::written_two_before ? queries_.as<void>() : written_.as<void>();
      if (keys != Keys::at_rest) {
        args.k = written_.as<void>(part);
        args.v = written_.as<void>(2 * part);
      }
      args.o = outputs_.as<void>(static_cast<size_t>(i) * reader_.o.bytes());
    }
  }

  // In order, each call waited for.
  std::vector<std::byte> in_order(CUstream stream) {
    poison(stream);
    for (Call call : calls_) {
      call.desc.features &= ~(ATTUNE_OVERLAP | ATTUNE_KV_READY);
      run(call, stream);
      driver_.check(driver_.cuStreamSynchronize(stream), "cuStreamSynchronize");
    }
    return result(stream);
  }

  std::vector<std::byte> overlapping(CUstream stream) {
    poison(stream);
    enqueue(stream);
    return result(stream);
  }

  void enqueue(CUstream stream) {
    for (const Call& call : calls_) run(call, stream);
  }
  std::vector<std::byte> replay(CUgraphExec graph, CUstream stream) {
    poison(stream);
    driver_.check(driver_.cuGraphLaunch(graph, stream), "cuGraphLaunch");
    return result(stream);
  }

  int calls() const { return static_cast<int>(calls_.size()); }
  size_t link_bytes() const { return reader_.o.bytes(); }

 private:
  struct Call {
    attune_context* context;
    attune_forward_desc desc;
    attune_forward_args args;
  };

  Call& add(attune_context* context, const CardCall& like, attune_features features) {
    calls_.push_back({context, like.desc, like.args});
    calls_.back().desc.features |= features;
    return calls_.back();
  }

  static void run(const Call& call, CUstream stream) {
    ASSERT_EQ(attune_forward(call.context, &call.desc, &call.args, stream), ATTUNE_OK) << attune_last_error();
  }

  void poison(CUstream stream) {
    for (const DeviceMemory* memory : {&written_, &queries_, &outputs_})
      driver_.check(driver_.cuMemsetD8Async(memory->address(), 0xff, memory->bytes(), stream), "cuMemsetD8Async");
  }

  std::vector<std::byte> result(CUstream stream) {
    driver_.check(driver_.cuStreamSynchronize(stream), "cuStreamSynchronize");
    std::vector<std::byte> bytes(outputs_.bytes());
    outputs_.download(bytes);
    return bytes;
  }

  const gpu::Driver& driver_;
  CardCall writers_[2];
  CardCall reader_;
  DeviceMemory written_, queries_, outputs_;
  std::vector<Call> calls_;
};

// What writes, the shapes, where the reader's keys come from.
using Chained = std::tuple<const char*, Shape, Keys>;

class OverlapOf : public Overlap, public testing::WithParamInterface<Chained> {};

TEST_P(OverlapOf, ChainGivesTheBitsOfCallsInOrder) {
  constexpr int repeats = 10;
  const auto& [writing, shape, keys] = GetParam();
  CUstream stream = make_stream();
  Chain chain(*driver, shape, keys, context_with(writing), small);
  const std::vector<std::byte> right = chain.in_order(stream);
  ASSERT_NE(std::memcmp(right.data(), right.data() + chain.link_bytes(), chain.link_bytes()), 0)
      << "neighbours must differ";
  const auto is_right = [&](const std::vector<std::byte>& bytes) {
    return std::memcmp(bytes.data(), right.data(), right.size()) == 0;
  };
  for (int i = 0; i < repeats; ++i) ASSERT_TRUE(is_right(chain.overlapping(stream))) << "on a stream, run " << i;

  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  driver->check(driver->cuStreamBeginCapture_v2(stream, gpu::CU_STREAM_CAPTURE_MODE_GLOBAL), "BeginCapture");
  chain.enqueue(stream);
  driver->check(driver->cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
  // Between two calls there is an edge, and it is the second call's to ask for.
  const bool all = std::string_view(writing) == "sm90/fwd_small";
  EXPECT_EQ(lab::count_programmatic_edges(*driver, graph), chain.calls() - (all ? 1 : Chain::links));
  driver->check(driver->cuGraphInstantiateWithFlags(&executable, graph, 0), "cuGraphInstantiate");
  for (int i = 0; i < repeats; ++i) ASSERT_TRUE(is_right(chain.replay(executable, stream))) << "in a graph, run " << i;
  driver->cuGraphExecDestroy(executable);
  driver->cuGraphDestroy(graph);
  driver->cuStreamDestroy_v2(stream);
}

std::string test_name(const testing::TestParamInfo<Chained>& info) {
  const auto& [writing, shape, keys] = info.param;
  std::string name = fmt::format("{}_then_{}_keys_{}", writing, shape.reader, name_of(keys));
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Written, OverlapOf,
                         testing::Combine(testing::Values("sm90/fwd_small", "sm90/fwd", "any/fwd"),
                                          testing::ValuesIn(shapes), testing::ValuesIn(every_source_of_keys)),
                         test_name);

}  // namespace
}  // namespace attune::sm90
