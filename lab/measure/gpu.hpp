// What the engine asks of a GPU: memory, graphs, and timed replays. An interface, so that everything above it is tested
// without one; cuda_gpu.hpp is the real one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "lab/measure/contender.hpp"

namespace attune::lab {

using DevicePointer = uint64_t;  // a CUdeviceptr
using GraphHandle = void*;       // a CUgraphExec
using StreamHandle = void*;      // a CUstream

// How the launches of a graph follow each other. full: each waits for the end of the one before, whatever the launches
// asked for. as_launched: a launch that asked for programmatic dependence keeps it.
enum class GraphEdges { full, as_launched };

struct RecordedGraph {
  GraphHandle handle = nullptr;
  int programmatic_edges = 0;
};

class Gpu {
 public:
  virtual ~Gpu() = default;

  virtual size_t l2_bytes() const = 0;
  virtual Facts facts() const = 0;

  virtual DevicePointer allocate(size_t bytes) = 0;
  virtual void release(DevicePointer pointer) = 0;
  virtual void upload(DevicePointer to, std::span<const std::byte> from) = 0;
  virtual void download(std::span<std::byte> to, DevicePointer from) = 0;

  // The engine's one stream.
  virtual StreamHandle stream() const = 0;
  virtual void synchronise() = 0;

  // A graph of what `body` puts on the stream it is given, ready to be replayed.
  virtual RecordedGraph record(GraphEdges edges, const std::function<void(StreamHandle)>& body) = 0;
  virtual void release_graph(GraphHandle graph) = 0;

  // One replay: its seconds by events on the stream, with the time the host needs to launch outside, and the SM clock.
  virtual Sample replay(GraphHandle graph) = 0;
};

}  // namespace attune::lab
