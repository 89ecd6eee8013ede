// The GPU behind the engine: graphs timed by events, with the SM clock read by the SMs themselves.
//
// A replay goes onto the stream as
//
//   hold | begin event | graph | end event | stamp
//
// `hold` is a small kernel on every SM that waits until the host has queued the rest, so that launch latency is outside
// the events, and then notes the SM's time and cycle counters; `stamp` notes them again. Cycles over time is the clock.
#pragma once

#include <memory>
#include <optional>

#include "gpu/device.hpp"
#include "lab/measure/gpu.hpp"

namespace attune::lab {

class CudaGpu final : public Gpu {
 public:
  // The device's primary context is current on this thread until the object is gone; it is used from this thread only.
  explicit CudaGpu(int device_index = 0);
  ~CudaGpu() override;

  size_t l2_bytes() const override { return static_cast<size_t>(device_.properties().l2_bytes); }
  Facts facts() const override;                  // the device's and, where NVML is there, the card's
  Facts state(const std::string& prefix) const;  // clocks, temperature, power now, by NVML
  std::optional<int> processes() const;          // that compute on the card, this one among them; by NVML

  DevicePointer allocate(size_t bytes) override;
  void release(DevicePointer pointer) override;
  void upload(DevicePointer to, std::span<const std::byte> from) override;
  void download(std::span<std::byte> to, DevicePointer from) override;

  StreamHandle stream() const override { return stream_; }
  void synchronise() override;

  RecordedGraph record(GraphEdges edges, const std::function<void(StreamHandle)>& body) override;
  void release_graph(GraphHandle graph) override;
  Sample replay(GraphHandle graph) override;

  const gpu::Driver& driver() const { return driver_; }
  const gpu::DeviceProperties& properties() const { return device_.properties(); }

 private:
  struct Stamp {
    uint64_t nanoseconds, cycles;
  };

  void launch_stamp(gpu::CUdeviceptr slots, uint64_t hold_nanoseconds);
  // True if the host queued everything while the GPU was held.
  bool queue_replay(GraphHandle graph);
  double clock_from_stamps();

  const gpu::Driver& driver_;
  gpu::Device device_;
  gpu::CurrentContext current_;
  std::string pci_bus_id_;
  gpu::CUstream stream_ = nullptr;
  gpu::CUevent begin_ = nullptr, end_ = nullptr;
  gpu::CUmodule module_ = nullptr;
  gpu::CUfunction stamp_ = nullptr;
  gpu::CUdeviceptr stamps_ = 0;  // [2][slot_count_]: before and after
  size_t slot_count_ = 0;
  uint64_t hold_nanoseconds_;
};

}  // namespace attune::lab
