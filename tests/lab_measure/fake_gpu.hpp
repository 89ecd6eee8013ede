// A GPU that only keeps books: what is allocated, what was uploaded, what each graph holds, and simulated time.
#pragma once

#include <bit>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "lab/measure/callee.hpp"
#include "lab/measure/gpu.hpp"
#include "simulated.hpp"

namespace attune::lab {

class FakeGpu final : public Gpu {
 public:
  explicit FakeGpu(SimulatedMachine& machine) : machine_(machine) {}

  struct Graph {
    GraphEdges edges;
    std::vector<Operands> calls;
    double seconds = 0;
  };

  size_t l2_bytes() const override { return 60u << 20; }
  Facts facts() const override { return {{"card", "fake"}}; }
  DevicePointer allocate(size_t bytes) override {
    memory.emplace_back(bytes);
    live.insert(reinterpret_cast<DevicePointer>(memory.back().data()));
    return reinterpret_cast<DevicePointer>(memory.back().data());
  }
  void release(DevicePointer pointer) override { live.erase(pointer); }
  void upload(DevicePointer to, std::span<const std::byte> from) override {
    std::memcpy(std::bit_cast<void*>(to), from.data(), from.size());
  }
  void download(std::span<std::byte> to, DevicePointer from) override {
    std::memcpy(to.data(), std::bit_cast<const void*>(from), to.size());
  }
  StreamHandle stream() const override { return const_cast<int*>(&stream_); }
  void synchronise() override {
    machine_.pass(pending_);
    pending_ = 0;
  }
  RecordedGraph record(GraphEdges edges, const std::function<void(StreamHandle)>& body) override {
    auto graph = std::make_unique<Graph>();
    graph->edges = edges;
    capturing = graph.get();
    body(stream());
    capturing = nullptr;
    ++recorded;
    const GraphHandle handle = graph.get();
    graphs[handle] = std::move(graph);
    return {handle, edges == GraphEdges::as_launched ? static_cast<int>(graphs[handle]->calls.size()) - 1 : 0};
  }
  void release_graph(GraphHandle graph) override { graphs.erase(graph); }
  Sample replay(GraphHandle handle) override {
    const double seconds = launch_seconds + graphs.at(handle)->seconds;
    machine_.pass(seconds);
    return {seconds, 1.7e9};
  }

  // What a callee does when it runs on this GPU.
  void execute(const Operands& operands, double seconds) {
    if (capturing != nullptr) {
      capturing->calls.push_back(operands);
      capturing->seconds += seconds;
    } else {
      pending_ += seconds;
    }
  }

  std::map<GraphHandle, std::unique_ptr<Graph>> graphs;
  std::set<DevicePointer> live;
  std::vector<std::vector<std::byte>> memory;  // never shrinks: what was written stays readable
  int recorded = 0;
  double launch_seconds = 5e-6;
  Graph* capturing = nullptr;

 private:
  SimulatedMachine& machine_;
  int stream_ = 0;
  double pending_ = 0;
};

class FakeCallee final : public Callee {
 public:
  FakeCallee(std::string name, FakeGpu& gpu, SimulatedMachine& machine, double gpu_seconds, double host_seconds,
             uint64_t workspace = 0)
      : name_(std::move(name)),
        gpu_(gpu),
        machine_(machine),
        gpu_seconds_(gpu_seconds),
        host_seconds_(host_seconds),
        workspace_(workspace) {}
  std::string_view name() const override { return name_; }
  uint64_t workspace_bytes() const override { return workspace_; }
  void run(const Operands& operands, void*) override {
    machine_.pass(host_seconds_);
    gpu_.execute(operands, gpu_seconds_);
  }
  Facts facts() const override { return {{"explain", "fake"}}; }

 private:
  std::string name_;
  FakeGpu& gpu_;
  SimulatedMachine& machine_;
  double gpu_seconds_, host_seconds_;
  uint64_t workspace_;
};

}  // namespace attune::lab
