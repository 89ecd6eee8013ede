#include "lab/measure/cuda_gpu.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <vector>

#include "core/error.hpp"
#include "lab/measure/graph_edges.hpp"
#include "lab/measure/nvml.hpp"
#include "lab/stats/summary.hpp"

namespace attune::lab {
namespace {

using namespace gpu;

// As PTX text, which the driver translates for whatever card is there: the engine needs no compiler of its own. Each
// block waits, then writes its SM's counters to the SM's slot.
constexpr const char* stamp_ptx = R"ptx(
.version 7.0
.target sm_70
.address_size 64
.visible .entry attune_stamp(.param .u64 slots, .param .u64 hold)
{
  .reg .pred %held;
  .reg .b32 %sm;
  .reg .b64 %slot, %offset, %hold, %begin, %now, %cycles;
  ld.param.u64 %slot, [slots];
  ld.param.u64 %hold, [hold];
  cvta.to.global.u64 %slot, %slot;
  mov.u64 %begin, %globaltimer;
WAIT:
  mov.u64 %now, %globaltimer;
  sub.u64 %offset, %now, %begin;
  setp.lt.u64 %held, %offset, %hold;
  @%held bra WAIT;
  mov.u32 %sm, %smid;
  mul.wide.u32 %offset, %sm, 16;
  add.u64 %slot, %slot, %offset;
  mov.u64 %cycles, %clock64;
  mov.u64 %now, %globaltimer;
  st.global.v2.u64 [%slot], {%now, %cycles};
  ret;
}
)ptx";

constexpr uint64_t shortest_hold = 20'000, longest_hold = 20'000'000;  // nanoseconds
constexpr int most_attempts = 4;
constexpr unsigned blocks_per_sm = 4;  // so that each SM gets at least one however the blocks fall

std::string pci_bus_id_of(int device_index) {
  // Not among the functions the library needs, so looked up here.
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  using Function = CUresult (*)(char*, int, CUdevice);
  const auto function =
      library == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library, "cuDeviceGetPCIBusId"));
  char text[32] = "";
  if (function == nullptr || function(text, sizeof text, device_index) != CUDA_SUCCESS) return "";
  return text;
}

}  // namespace

CudaGpu::CudaGpu(int device_index)
    : driver_(gpu::driver()),
      device_(driver_, device_index),
      current_(driver_, device_.context()),
      pci_bus_id_(pci_bus_id_of(device_index)),
      hold_nanoseconds_(shortest_hold) {
  driver_.check(driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  driver_.check(driver_.cuEventCreate(&begin_, CU_EVENT_DEFAULT), "cuEventCreate");
  driver_.check(driver_.cuEventCreate(&end_, CU_EVENT_DEFAULT), "cuEventCreate");
  driver_.check(driver_.cuModuleLoadData(&module_, stamp_ptx), "cuModuleLoadData (time stamps)");
  driver_.check(driver_.cuModuleGetFunction(&stamp_, module_, "attune_stamp"), "cuModuleGetFunction");
  slot_count_ = 2 * static_cast<size_t>(device_.properties().sm_count);  // SM numbers may have holes
  stamps_ = allocate(2 * slot_count_ * sizeof(Stamp));
}

CudaGpu::~CudaGpu() {
  driver_.cuStreamSynchronize(stream_);
  driver_.cuMemFree_v2(stamps_);
  driver_.cuModuleUnload(module_);
  driver_.cuEventDestroy_v2(begin_);
  driver_.cuEventDestroy_v2(end_);
  driver_.cuStreamDestroy_v2(stream_);
}

Facts CudaGpu::facts() const {
  const DeviceProperties& properties = device_.properties();
  Facts facts{{"card", properties.name},
              {"architecture", properties.arch()},
              {"sm_count", std::to_string(properties.sm_count)},
              {"l2_bytes", std::to_string(properties.l2_bytes)},
              {"memory_bytes", std::to_string(properties.memory_bytes)},
              {"cuda_driver", fmt::format("{}.{}", driver_.version / 1000, driver_.version % 1000 / 10)}};
  std::string why_not;
  if (const auto nvml = Nvml::open(why_not))
    facts.merge(nvml->card(pci_bus_id_));
  else
    facts["nvml"] = why_not;
  return facts;
}

Facts CudaGpu::state(const std::string& prefix) const {
  std::string why_not;
  const auto nvml = Nvml::open(why_not);
  return nvml == nullptr ? Facts{} : nvml->state(pci_bus_id_, prefix);
}

std::optional<int> CudaGpu::processes() const {
  std::string why_not;
  const auto nvml = Nvml::open(why_not);
  return nvml == nullptr ? std::nullopt : nvml->processes(pci_bus_id_);
}

DevicePointer CudaGpu::allocate(size_t bytes) {
  CUdeviceptr pointer = 0;
  driver_.check(driver_.cuMemAlloc_v2(&pointer, bytes), "cuMemAlloc");
  return pointer;
}

void CudaGpu::release(DevicePointer pointer) {
  driver_.cuStreamSynchronize(stream_);  // nothing may still read it
  driver_.cuMemFree_v2(pointer);
}

void CudaGpu::upload(DevicePointer to, std::span<const std::byte> from) {
  if (from.empty()) return;
  driver_.check(driver_.cuMemcpyHtoD_v2(to, from.data(), from.size()), "cuMemcpyHtoD");
}

void CudaGpu::download(std::span<std::byte> to, DevicePointer from) {
  if (to.empty()) return;
  driver_.check(driver_.cuMemcpyDtoH_v2(to.data(), from, to.size()), "cuMemcpyDtoH");
}

void CudaGpu::synchronise() { driver_.check(driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize"); }

RecordedGraph CudaGpu::record(GraphEdges edges, const std::function<void(StreamHandle)>& body) {
  driver_.check(driver_.cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
  CUgraph graph = nullptr;
  try {
    body(stream_);
  } catch (...) {
    if (driver_.cuStreamEndCapture(stream_, &graph) == CUDA_SUCCESS) driver_.cuGraphDestroy(graph);
    throw;
  }
  driver_.check(driver_.cuStreamEndCapture(stream_, &graph), "cuStreamEndCapture");
  const std::unique_ptr<CUgraph_st, CUresult (*)(CUgraph)> owner(graph, driver_.cuGraphDestroy);
  RecordedGraph recorded;
  if (edges == GraphEdges::full) make_edges_full(driver_, graph);
  recorded.programmatic_edges = count_programmatic_edges(driver_, graph);
  CUgraphExec executable = nullptr;
  driver_.check(driver_.cuGraphInstantiateWithFlags(&executable, graph, 0), "cuGraphInstantiate");
  recorded.handle = executable;
  return recorded;
}

void CudaGpu::release_graph(GraphHandle graph) {
  driver_.cuStreamSynchronize(stream_);
  driver_.cuGraphExecDestroy(static_cast<CUgraphExec>(graph));
}

void CudaGpu::launch_stamp(CUdeviceptr slots, uint64_t hold_nanoseconds) {
  CUlaunchConfig config{};
  config.gridDimX = blocks_per_sm * static_cast<unsigned>(device_.properties().sm_count);
  config.gridDimY = config.gridDimZ = config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream_;
  void* params[] = {&slots, &hold_nanoseconds};
  driver_.check(driver_.cuLaunchKernelEx(&config, stamp_, params, nullptr), "cuLaunchKernelEx (time stamps)");
}

bool CudaGpu::queue_replay(GraphHandle graph) {
  const size_t half = slot_count_ * sizeof(Stamp);
  driver_.check(driver_.cuMemsetD8Async(stamps_, 0, 2 * half, stream_), "cuMemsetD8Async");
  const double begin = steady_clock().now();
  launch_stamp(stamps_, hold_nanoseconds_);
  driver_.check(driver_.cuEventRecord(begin_, stream_), "cuEventRecord");
  driver_.check(driver_.cuGraphLaunch(static_cast<CUgraphExec>(graph), stream_), "cuGraphLaunch");
  const auto taken = static_cast<uint64_t>((steady_clock().now() - begin) * 1e9);
  driver_.check(driver_.cuEventRecord(end_, stream_), "cuEventRecord");
  launch_stamp(stamps_ + half, 0);
  synchronise();
  if (taken < hold_nanoseconds_) return true;
  hold_nanoseconds_ = std::min(2 * taken, longest_hold);
  return false;
}

Sample CudaGpu::replay(GraphHandle graph) {
  // The first launch of a graph uploads it, and takes longer than a hold made for the others.
  for (int attempt = 1; !queue_replay(graph) && attempt < most_attempts; ++attempt) {
  }
  float milliseconds = 0;
  driver_.check(driver_.cuEventElapsedTime(&milliseconds, begin_, end_), "cuEventElapsedTime");
  return {milliseconds * 1e-3, clock_from_stamps()};
}

double CudaGpu::clock_from_stamps() {
  std::vector<Stamp> stamps(2 * slot_count_);
  driver_.check(driver_.cuMemcpyDtoH_v2(stamps.data(), stamps_, stamps.size() * sizeof(Stamp)), "cuMemcpyDtoH");
  std::vector<double> clocks;
  for (size_t i = 0; i < slot_count_; ++i) {
    const Stamp &before = stamps[i], &after = stamps[slot_count_ + i];
    if (before.nanoseconds == 0 || after.nanoseconds <= before.nanoseconds) continue;
    clocks.push_back(1e9 * static_cast<double>(after.cycles - before.cycles) /
                     static_cast<double>(after.nanoseconds - before.nanoseconds));
  }
  return clocks.empty() ? 0 : stats::median(clocks);
}

}  // namespace attune::lab
