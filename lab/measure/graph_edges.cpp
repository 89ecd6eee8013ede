#include "lab/measure/graph_edges.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <vector>

namespace attune::lab {
namespace {

using namespace gpu;

struct EdgeData {  // CUgraphEdgeData
  unsigned char from_port, to_port, type, reserved[5];
};
static_assert(sizeof(EdgeData) == 8);
constexpr unsigned char programmatic_type = 1;  // CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC

// Since CUDA 12.3, which is newer than what the library needs, and so looked up here.
struct EdgeFunctions {
  CUresult (*get)(CUgraph, CUgraphNode*, CUgraphNode*, EdgeData*, size_t*) = nullptr;
  CUresult (*add)(CUgraph, const CUgraphNode*, const CUgraphNode*, const EdgeData*, size_t) = nullptr;
  CUresult (*remove)(CUgraph, const CUgraphNode*, const CUgraphNode*, const EdgeData*, size_t) = nullptr;

  EdgeFunctions() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    get = reinterpret_cast<decltype(get)>(dlsym(library, "cuGraphGetEdges_v2"));
    add = reinterpret_cast<decltype(add)>(dlsym(library, "cuGraphAddDependencies_v2"));
    remove = reinterpret_cast<decltype(remove)>(dlsym(library, "cuGraphRemoveDependencies_v2"));
  }
  bool present() const { return get != nullptr && add != nullptr && remove != nullptr; }
};

const EdgeFunctions& functions() {
  static const EdgeFunctions once;
  return once;
}

struct Edges {
  std::vector<CUgraphNode> from, to;
  std::vector<EdgeData> data;
};

Edges programmatic_edges(const Driver& driver, CUgraph graph) {
  Edges all;
  if (!functions().present()) return all;
  size_t count = 0;
  driver.check(functions().get(graph, nullptr, nullptr, nullptr, &count), "cuGraphGetEdges");
  all.from.resize(count);
  all.to.resize(count);
  all.data.resize(count);
  if (count == 0) return all;
  driver.check(functions().get(graph, all.from.data(), all.to.data(), all.data.data(), &count), "cuGraphGetEdges");
  Edges programmatic;
  for (size_t i = 0; i < count; ++i) {
    if (all.data[i].type != programmatic_type) continue;
    programmatic.from.push_back(all.from[i]);
    programmatic.to.push_back(all.to[i]);
    programmatic.data.push_back(all.data[i]);
  }
  return programmatic;
}

}  // namespace

int count_programmatic_edges(const Driver& driver, CUgraph graph) {
  return static_cast<int>(programmatic_edges(driver, graph).data.size());
}

void make_edges_full(const Driver& driver, CUgraph graph) {
  Edges edges = programmatic_edges(driver, graph);
  const size_t count = edges.data.size();
  if (count == 0) return;
  driver.check(functions().remove(graph, edges.from.data(), edges.to.data(), edges.data.data(), count),
               "cuGraphRemoveDependencies");
  std::ranges::fill(edges.data, EdgeData{});
  driver.check(functions().add(graph, edges.from.data(), edges.to.data(), edges.data.data(), count),
               "cuGraphAddDependencies");
}

}  // namespace attune::lab
