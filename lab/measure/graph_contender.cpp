#include "lab/measure/graph_contender.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"

namespace attune::lab {
namespace {

// So the peers were recorded. What a replay costs at its ends is shared by this many calls, for every contender alike;
// samples of short contenders are shorter than others in return.
constexpr int most_calls = 50;

class GraphContender final : public Contender {
 public:
  GraphContender(std::unique_ptr<GraphSource> source, Gpu& gpu) : source_(std::move(source)), gpu_(gpu) {}
  GraphContender(const GraphContender&) = delete;
  GraphContender& operator=(const GraphContender&) = delete;
  ~GraphContender() override { drop(); }

  std::string_view name() const override { return source_->name(); }

  void prepare(double sample_seconds, uint64_t seed) override {
    drop();
    source_->make(seed);
    calls_ = source_->fixed_calls().value_or(source_->fewest_calls());
    if (!source_->fixed_calls()) {
      // Twice: one launch alone costs far more than one in a row, so the first guess is too low.
      for (int guess = 0; guess < 2; ++guess) {
        record();
        gpu_.replay(graph_.handle);
        const double per_call = std::max(gpu_.replay(graph_.handle).seconds / calls_, 1e-9);
        const double wanted = std::ceil(sample_seconds / per_call);
        calls_ = std::max(source_->fewest_calls(), static_cast<int>(std::min<double>(wanted, most_calls)));
      }
    }
    record();
  }

  void remake(uint64_t seed) override {
    drop();
    source_->make(seed);
    record();
  }

  Sample sample() override {
    Sample sample = gpu_.replay(graph_.handle);
    sample.seconds /= calls_;
    return sample;
  }

  Facts facts() const override {
    Facts facts = source_->facts();
    facts["calls_per_sample"] = std::to_string(calls_);
    facts["programmatic_edges"] = std::to_string(graph_.programmatic_edges);
    facts["timer"] = "events around a graph";
    return facts;
  }

 private:
  void record() {
    drop();
    graph_ = source_->record(calls_);
  }

  void drop() {
    if (graph_.handle != nullptr) source_->release(graph_);
    graph_ = {};
  }

  std::unique_ptr<GraphSource> source_;
  Gpu& gpu_;
  RecordedGraph graph_;
  int calls_ = 1;
};

class CapturedGraph final : public GraphSource {
 public:
  CapturedGraph(std::string name, CaptureGraph capture, Facts facts)
      : name_(std::move(name)), capture_(std::move(capture)), facts_(std::move(facts)) {
    if (!capture_) fail(ATTUNE_INVALID_ARGUMENT, "contender '{}' cannot be captured: no function", name_);
  }
  std::string_view name() const override { return name_; }
  Facts facts() const override { return facts_; }
  void make(uint64_t seed) override { seed_ = seed; }
  RecordedGraph record(int calls) override {
    const GraphHandle graph = capture_(calls, seed_);
    if (graph == nullptr) fail(ATTUNE_INVALID_ARGUMENT, "contender '{}': capturing {} calls failed", name_, calls);
    return {graph, 0};
  }
  void release(const RecordedGraph&) override {}

 private:
  std::string name_;
  CaptureGraph capture_;
  Facts facts_;
  uint64_t seed_ = 0;
};

class FixedGraph final : public GraphSource {
 public:
  FixedGraph(std::string name, GraphHandle graph, int calls, Facts facts)
      : name_(std::move(name)), graph_(graph), calls_(calls), facts_(std::move(facts)) {
    if (graph_ == nullptr) fail(ATTUNE_INVALID_ARGUMENT, "contender '{}': the graph is NULL", name_);
    if (calls_ < 1) fail(ATTUNE_INVALID_ARGUMENT, "contender '{}': calls is {}; at least 1", name_, calls_);
    facts_["graph"] = "the same in every round";
  }
  std::string_view name() const override { return name_; }
  Facts facts() const override { return facts_; }
  void make(uint64_t) override {}
  RecordedGraph record(int) override { return {graph_, 0}; }
  void release(const RecordedGraph&) override {}
  std::optional<int> fixed_calls() const override { return calls_; }

 private:
  std::string name_;
  GraphHandle graph_;
  int calls_;
  Facts facts_;
};

}  // namespace

std::unique_ptr<Contender> graph_contender(std::unique_ptr<GraphSource> source, Gpu& gpu) {
  return std::make_unique<GraphContender>(std::move(source), gpu);
}

std::unique_ptr<GraphSource> captured_graph(std::string name, CaptureGraph capture, Facts facts) {
  return std::make_unique<CapturedGraph>(std::move(name), std::move(capture), std::move(facts));
}

std::unique_ptr<GraphSource> fixed_graph(std::string name, GraphHandle graph, int calls, Facts facts) {
  return std::make_unique<FixedGraph>(std::move(name), graph, calls, std::move(facts));
}

}  // namespace attune::lab
