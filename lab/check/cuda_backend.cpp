#include "lab/check/cuda_backend.hpp"

#include <array>
#include <map>

#include "core/error.hpp"
#include "dispatch/context.hpp"
#include "dispatch/select.hpp"
#include "gpu/kernel.hpp"
#include "kernels/any/reference.hpp"
#include "lab/check/device_memory.hpp"

namespace attune::lab {
namespace {

using gpu::Driver;

Problem on_device(Problem problem, int device_index) {
  problem.device_kind = DeviceKind::cuda;
  problem.device_index = device_index;
  return problem;
}

// A copy of a call's buffers, red zones and poison included.
class DeviceCall {
 public:
  DeviceCall(const Driver& driver, const Tensors& host, uint64_t workspace_bytes) {
    for_each_buffer(host, [&](const OperandRow& row, size_t, const Buffer& buffer) {
      std::vector<DeviceMemory>& memory = memory_[static_cast<size_t>(row.operand)];
      memory.emplace_back(driver, buffer.whole());
      void* const address = memory.back().as<void>(buffer.offset_bytes());
      if (!row.per_part) {
        operands_.set(row.operand, address);
        return;
      }
      std::vector<const void*>& parts = parts_[static_cast<size_t>(row.operand)];
      parts.push_back(address);
      operands_.set(row.operand, parts.data());
    });
    // Poisoned like everything else: a workspace holds nothing a kernel may rely on.
    workspace_ = DeviceMemory(driver, workspace_bytes);
    if (workspace_bytes > 0) {
      driver.check(driver.cuMemsetD8_v2(workspace_.address(), 0xff, workspace_bytes), "cuMemsetD8");
      driver.check(driver.cuStreamSynchronize(nullptr), "cuStreamSynchronize");  // it does not wait by itself
    }
    operands_.workspace = workspace_.as<void>();
    operands_.workspace_bytes = workspace_bytes;
  }
  DeviceCall(const DeviceCall&) = delete;  // operands with parts point into it
  DeviceCall& operator=(const DeviceCall&) = delete;

  const Operands& operands() const { return operands_; }

  void download_outputs(Tensors& to) const {
    for_each_buffer(to, [&](const OperandRow& row, size_t part, Buffer& buffer) {
      if (is_written(to.problem, row)) memory_[static_cast<size_t>(row.operand)][part].download(buffer.whole());
    });
  }

 private:
  Operands operands_;
  std::array<std::vector<DeviceMemory>, operand_count> memory_;
  std::array<std::vector<const void*>, operand_count> parts_;
  DeviceMemory workspace_;
};

class CudaExecutor final : public Executor {
 public:
  CudaExecutor(int device_index, std::string config)
      : device_index_(device_index),
        config_(std::move(config)),
        driver_(gpu::driver()),
        primary_(context("").gpu().device(device_index).context()) {
    const gpu::CurrentContext current(driver_, primary_);
    driver_.check(driver_.cuStreamCreate(&stream_, gpu::CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  }
  ~CudaExecutor() override {
    const gpu::CurrentContext current(driver_, primary_);
    driver_.cuStreamDestroy_v2(stream_);
  }

  DeviceKind device_kind() const override { return DeviceKind::cuda; }

  Choice choose(std::string_view kernel, const Problem& problem) override {
    const Selection selection = select(on_device(problem, device_index_), context(kernel), kernel);
    return {selection.chosen == nullptr ? "" : std::string(selection.chosen->name()), selection.why};
  }

  // On a stream, and as a graph that is replayed: three runs of it over the same memory.
  std::vector<std::string> settings() const override { return {"stream", "graph"}; }

  void run(std::string_view kernel, Tensors& tensors, std::string_view setting) override {
    const gpu::CurrentContext current(driver_, primary_);
    const Problem problem = on_device(tensors.problem, device_index_);
    Context& with = context(kernel);
    const bool own = !config_.empty();  // the configuration that was asked for
    const std::shared_ptr<const Plan> plan =
        own ? gpu::find_gpu_kernel(kernel).plan_with(problem, with, config_) : with.plan_for(problem);
    const DeviceCall call(driver_, tensors, plan->workspace_bytes());
    if (own && !plan->problem.empty())
      plan->run(call.operands(), stream_);
    else if (setting == "graph")
      replay(with, problem, call.operands());
    else
      with.run(problem, call.operands(), stream_);
    driver_.check(driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
    call.download_outputs(tensors);
  }

 private:
  void replay(Context& with, const Problem& problem, const Operands& operands) {
    with.prepare(problem);
    gpu::CUgraph graph = nullptr;
    gpu::CUgraphExec executable = nullptr;
    driver_.check(driver_.cuStreamBeginCapture_v2(stream_, gpu::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                  "cuStreamBeginCapture");
    try {
      with.run(problem, operands, stream_);
    } catch (...) {
      driver_.cuStreamEndCapture(stream_, &graph);
      throw;
    }
    driver_.check(driver_.cuStreamEndCapture(stream_, &graph), "cuStreamEndCapture");
    driver_.check(driver_.cuGraphInstantiateWithFlags(&executable, graph, 0), "cuGraphInstantiate");
    for (int i = 0; i < 3; ++i) driver_.check(driver_.cuGraphLaunch(executable, stream_), "cuGraphLaunch");
    driver_.check(driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
    driver_.cuGraphExecDestroy(executable);
    driver_.cuGraphDestroy(graph);
  }

  Context& context(std::string_view kernel) {
    auto& slot = contexts_[std::string(kernel)];
    if (!slot) {
      const std::string name(kernel);
      attune_options options{};
      options.struct_size = sizeof options;
      options.threads = 1;
      options.kernel = name.empty() ? nullptr : name.c_str();
      slot = std::make_unique<Context>(options);
    }
    return *slot;
  }

  const int device_index_;
  const std::string config_;
  std::map<std::string, std::unique_ptr<Context>> contexts_;
  const Driver& driver_;
  const gpu::CUcontext primary_;
  gpu::CUstream stream_ = nullptr;
};

class CudaReference final : public ReferenceSource {
 public:
  explicit CudaReference(int device_index)
      : device_index_(device_index), threads_(attune_options{}), on_cpu_(make_cpu_reference(threads_)) {
    runtime_.device(device_index);
  }

  // The reference kernel knows attention; rows of other operations are quickly made by the CPU.
  ReferenceRows rows(const Tensors& tensors, std::span<const RowId> wanted) override {
    if (tensors.problem.operation != &forward_operation) return on_cpu_->rows(tensors, wanted);
    gpu::Device& device = runtime_.device(device_index_);
    const Driver& driver = device.driver();
    const gpu::CurrentContext current(driver, device.context());
    const Problem problem = on_device(tensors.problem, device_index_);
    ReferenceRows result;
    result.dim = problem.dim_v;
    if (problem.empty()) return result;

    const DeviceCall call(driver, tensors, 0);
    const any::DeviceReference reference(problem, runtime_);
    const auto lines = static_cast<size_t>(problem.heads_q * reference.rows());
    std::vector<double> all_o(lines * static_cast<size_t>(problem.dim_v)), all_lse(lines);
    const DeviceMemory o(driver, all_o.size() * sizeof(double)), lse(driver, lines * sizeof(double));
    reference.run(call.operands(), o.as<double>(), lse.as<double>(), nullptr);
    o.download(std::as_writable_bytes(std::span(all_o)));
    lse.download(std::as_writable_bytes(std::span(all_lse)));

    for (const RowId& row : wanted) {
      const int64_t line =
          row.head * reference.rows() +
          (problem.packed() ? tensors.sequence(row.batch).first_row_q + row.row : row.batch * problem.seq_q + row.row);
      const auto first = all_o.begin() + line * problem.dim_v;
      result.o.insert(result.o.end(), first, first + problem.dim_v);
      result.lse.push_back(all_lse[static_cast<size_t>(line)]);
    }
    return result;
  }

 private:
  const int device_index_;
  gpu::Runtime runtime_;
  cpu::Threads threads_;
  const std::unique_ptr<ReferenceSource> on_cpu_;
};

}  // namespace

std::unique_ptr<Executor> make_cuda_executor(int device_index, const std::string& config) {
  return std::make_unique<CudaExecutor>(device_index, config);
}

std::unique_ptr<ReferenceSource> make_cuda_reference(int device_index) {
  return std::make_unique<CudaReference>(device_index);
}

}  // namespace attune::lab
