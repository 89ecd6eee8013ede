// A contender that is a CUDA graph of many calls, replayed. Where the graph comes from is a GraphSource's business.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "lab/measure/contender.hpp"
#include "lab/measure/gpu.hpp"

namespace attune::lab {

class GraphSource {
 public:
  virtual ~GraphSource() = default;

  virtual std::string_view name() const = 0;
  virtual Facts facts() const = 0;

  // New buffers, filled from the seed; what is recorded next uses them.
  virtual void make(uint64_t seed) = 0;

  virtual RecordedGraph record(int calls) = 0;
  virtual void release(const RecordedGraph& graph) = 0;

  // The least calls that make a fair batch.
  virtual int fewest_calls() const { return 1; }
  // Set when the graph is given and its number of calls with it.
  virtual std::optional<int> fixed_calls() const { return {}; }
};

std::unique_ptr<Contender> graph_contender(std::unique_ptr<GraphSource> source, Gpu& gpu);

// Captures a graph of `calls` calls on buffers made from the seed. The graph stays the owner's, and valid until the
// next capture.
using CaptureGraph = std::function<GraphHandle(int calls, uint64_t seed)>;

// A graph that somebody else captures, with as many calls as the engine asks for.
std::unique_ptr<GraphSource> captured_graph(std::string name, CaptureGraph capture, Facts facts);

// A graph that somebody else has captured, of `calls` calls: the same in every round, also where a short contender
// should be remade. The result says so.
std::unique_ptr<GraphSource> fixed_graph(std::string name, GraphHandle graph, int calls, Facts facts);

}  // namespace attune::lab
