#include "lab/measure/forward_contender.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <vector>

#include "core/error.hpp"
#include "lab/measure/cpu_contender.hpp"
#include "lab/measure/device_tensors.hpp"
#include "lab/measure/graph_contender.hpp"

namespace attune::lab {
namespace {

constexpr std::array mode_names{"steady", "cold", "pdl", "host"};
constexpr size_t most_buffer_sets = 4096;
constexpr size_t workspace_alignment = 256;

// Two copies of one contender get the same data but must not lie alike.
uint64_t next_instance() {
  static std::atomic<uint64_t> instances{0};
  return ++instances;
}

// Host tensors and workspace of a call on the CPU.
struct CpuCall {
  std::unique_ptr<Callee> callee;
  std::shared_ptr<InputSource> inputs;
  Tensors tensors;
  std::vector<std::byte> workspace;
  Operands operands;

  void make(uint64_t seed) {
    tensors = *inputs->get(seed);
    operands = tensors.operands();
    const uint64_t bytes = callee->workspace_bytes();
    if (bytes == 0) return;
    workspace.assign(bytes + workspace_alignment, std::byte{});
    const auto address = reinterpret_cast<uintptr_t>(workspace.data());
    operands.workspace = workspace.data() + (workspace_alignment - address % workspace_alignment) % workspace_alignment;
    operands.workspace_bytes = bytes;
  }
};

// The CPU contender with the facts of what it calls.
class CpuForward final : public Contender {
 public:
  CpuForward(std::unique_ptr<Callee> callee, std::shared_ptr<InputSource> inputs, Clock& clock)
      : call_{std::move(callee), std::move(inputs), {}, {}, {}},
        timed_(
            std::string(call_.callee->name()), [this] { call_.callee->run(call_.operands, nullptr); },
            [this](uint64_t seed) { call_.make(seed); }, clock) {}
  CpuForward(const CpuForward&) = delete;  // the timed calls hold its address
  CpuForward& operator=(const CpuForward&) = delete;

  std::string_view name() const override { return timed_.name(); }
  void prepare(double sample_seconds, uint64_t seed) override { timed_.prepare(sample_seconds, seed); }
  void remake(uint64_t seed) override { timed_.remake(seed); }
  Sample sample() override { return timed_.sample(); }
  Facts facts() const override {
    Facts facts = timed_.facts();
    facts.merge(call_.callee->facts());
    return facts;
  }

 private:
  CpuCall call_;
  CpuContender timed_;
};

// Buffer sets on the device, and the callee that runs on them.
class GpuCall {
 public:
  GpuCall(std::unique_ptr<Callee> callee, std::shared_ptr<InputSource> inputs, Gpu& gpu, bool cold)
      : callee_(std::move(callee)), inputs_(std::move(inputs)), gpu_(gpu), cold_(cold), instance_(next_instance()) {}

  void make(uint64_t seed) {
    sets_.clear();
    const auto host = inputs_->get(seed);
    const int count = cold_ ? buffer_sets_for_cold(gpu_.l2_bytes(), tensor_bytes(*host)) : 1;
    for (int i = 0; i < count; ++i) {
      const uint64_t placement = seed ^ (instance_ * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(i));
      sets_.push_back(std::make_unique<DeviceTensors>(gpu_, *host, callee_->workspace_bytes(), placement));
    }
    run(0, gpu_.stream());  // whatever a first call does is done before anything is captured or timed
    gpu_.synchronise();
  }

  void run(int index, StreamHandle stream) { callee_->run(sets_[index % sets_.size()]->operands(), stream); }
  int sets() const { return static_cast<int>(sets_.size()); }
  const Callee& callee() const { return *callee_; }
  Gpu& gpu() const { return gpu_; }

 private:
  std::unique_ptr<Callee> callee_;
  std::shared_ptr<InputSource> inputs_;
  Gpu& gpu_;
  bool cold_;
  uint64_t instance_;
  std::vector<std::unique_ptr<DeviceTensors>> sets_;
};

// The calls of a callee as a graph.
class ForwardGraph final : public GraphSource {
 public:
  ForwardGraph(std::unique_ptr<Callee> callee, std::shared_ptr<InputSource> inputs, Gpu& gpu, GpuMode mode)
      : call_(std::move(callee), std::move(inputs), gpu, mode == GpuMode::cold),
        edges_(mode == GpuMode::pdl ? GraphEdges::as_launched : GraphEdges::full) {}

  std::string_view name() const override { return call_.callee().name(); }
  Facts facts() const override {
    Facts facts = call_.callee().facts();
    facts["buffer_sets"] = std::to_string(call_.sets());
    return facts;
  }
  void make(uint64_t seed) override { call_.make(seed); }
  RecordedGraph record(int calls) override {
    return call_.gpu().record(edges_, [this, calls](StreamHandle stream) {
      for (int i = 0; i < calls; ++i) call_.run(i, stream);
    });
  }
  void release(const RecordedGraph& graph) override { call_.gpu().release_graph(graph.handle); }
  int fewest_calls() const override { return call_.sets(); }  // or the sets left out would not push the others out

 private:
  GpuCall call_;
  GraphEdges edges_;
};

// The CPU's share of a call: calls put on the stream one after another, the queue emptied outside the timing before it
// is full and would make the CPU wait.
class HostContender final : public Contender {
 public:
  HostContender(std::unique_ptr<Callee> callee, std::shared_ptr<InputSource> inputs, Gpu& gpu, Clock& clock)
      : call_(std::move(callee), std::move(inputs), gpu, false), clock_(clock) {}

  std::string_view name() const override { return call_.callee().name(); }

  void prepare(double sample_seconds, uint64_t seed) override {
    call_.make(seed);
    bursts_ = 1;
    const double burst = std::max(time_bursts(), 1e-9);
    bursts_ = std::max(1, static_cast<int>(std::ceil(sample_seconds / burst)));
  }

  void remake(uint64_t seed) override { call_.make(seed); }
  Sample sample() override { return {time_bursts() / (bursts_ * calls_per_burst), 0}; }

  Facts facts() const override {
    Facts facts = call_.callee().facts();
    facts["calls_per_sample"] = std::to_string(bursts_ * calls_per_burst);
    facts["timer"] = "wall clock of the calling thread, the GPU's work left out";
    return facts;
  }

 private:
  static constexpr int calls_per_burst = 64;  // far below the depth of a stream's queue

  double time_bursts() {
    double seconds = 0;
    for (int i = 0; i < bursts_; ++i) {
      const double begin = clock_.now();
      for (int j = 0; j < calls_per_burst; ++j) call_.run(0, call_.gpu().stream());
      seconds += clock_.now() - begin;
      call_.gpu().synchronise();
    }
    return seconds;
  }

  GpuCall call_;
  Clock& clock_;
  int bursts_ = 1;
};

}  // namespace

std::string_view name_of(GpuMode mode) { return mode_names[static_cast<size_t>(mode)]; }

GpuMode gpu_mode_from(std::string_view name) {
  for (size_t i = 0; i < mode_names.size(); ++i)
    if (name == mode_names[i]) return static_cast<GpuMode>(i);
  fail(ATTUNE_INVALID_ARGUMENT, "mode '{}' is none of steady, cold, pdl, host", name);
}

int buffer_sets_for_cold(size_t l2_bytes, size_t bytes_of_set) {
  const size_t bytes = std::max<size_t>(bytes_of_set, 1);
  return static_cast<int>(std::min<size_t>((2 * l2_bytes + bytes - 1) / bytes + 1, most_buffer_sets));
}

std::unique_ptr<Contender> cpu_forward_contender(std::unique_ptr<Callee> callee, std::shared_ptr<InputSource> inputs,
                                                 Clock& clock) {
  return std::make_unique<CpuForward>(std::move(callee), std::move(inputs), clock);
}

std::unique_ptr<Contender> gpu_forward_contender(std::unique_ptr<Callee> callee, std::shared_ptr<InputSource> inputs,
                                                 Gpu& gpu, GpuMode mode, Clock& clock) {
  if (mode == GpuMode::host) return std::make_unique<HostContender>(std::move(callee), std::move(inputs), gpu, clock);
  return graph_contender(std::make_unique<ForwardGraph>(std::move(callee), std::move(inputs), gpu, mode), gpu);
}

}  // namespace attune::lab
