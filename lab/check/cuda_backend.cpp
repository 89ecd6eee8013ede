#include "lab/check/cuda_backend.hpp"

#include <algorithm>
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
  DeviceCall(const Driver& driver, const Tensors& host, uint64_t workspace_bytes) : args_(host.input_args()) {
    const auto place = [&](Buffer Tensors::* buffer, auto& pointer) {
      const Buffer& from = host.*buffer;
      if (!from.allocated()) return;
      memory_[buffer_index(buffer)] = DeviceMemory(driver, from.whole());
      pointer = memory_[buffer_index(buffer)].template as<std::remove_pointer_t<std::decay_t<decltype(pointer)>>>(
          from.offset_bytes());
    };
    place(&Tensors::q, args_.q);
    place(&Tensors::k, args_.k);
    place(&Tensors::v, args_.v);
    place(&Tensors::o, args_.o);
    place(&Tensors::lse, args_.lse);
    place(&Tensors::sink, args_.sink);
    place(&Tensors::bias, args_.bias);
    place(&Tensors::mask, args_.mask);
    place(&Tensors::cu_seqlens_q, args_.cu_seqlens_q);
    place(&Tensors::cu_seqlens_k, args_.cu_seqlens_k);
    place(&Tensors::used_q, args_.used_q);
    place(&Tensors::used_k, args_.used_k);
    // Poisoned like everything else: a workspace holds nothing a kernel may rely on.
    workspace_ = DeviceMemory(driver, workspace_bytes);
    if (workspace_bytes > 0) {
      driver.check(driver.cuMemsetD8_v2(workspace_.address(), 0xff, workspace_bytes), "cuMemsetD8");
      driver.check(driver.cuStreamSynchronize(nullptr), "cuStreamSynchronize");  // it does not wait by itself
    }
    args_.workspace = workspace_.as<void>();
    args_.workspace_bytes = workspace_bytes;
  }

  const attune_forward_args& args() const { return args_; }

  void download_outputs(Tensors& to) const {
    memory_[buffer_index(&Tensors::o)].download(to.o.whole());
    if (to.lse.allocated()) memory_[buffer_index(&Tensors::lse)].download(to.lse.whole());
  }

 private:
  static size_t buffer_index(Buffer Tensors::* buffer) {
    static constexpr Buffer Tensors::* all[] = {&Tensors::q,
                                                &Tensors::k,
                                                &Tensors::v,
                                                &Tensors::o,
                                                &Tensors::lse,
                                                &Tensors::sink,
                                                &Tensors::bias,
                                                &Tensors::mask,
                                                &Tensors::cu_seqlens_q,
                                                &Tensors::cu_seqlens_k,
                                                &Tensors::used_q,
                                                &Tensors::used_k};
    return static_cast<size_t>(std::ranges::find(all, buffer) - std::begin(all));
  }

  attune_forward_args args_;
  DeviceMemory memory_[12];
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

  void forward(std::string_view kernel, Tensors& tensors, std::string_view setting) override {
    const gpu::CurrentContext current(driver_, primary_);
    const attune_forward_desc desc = desc_from(on_device(tensors.problem, device_index_));
    Context& with = context(kernel);
    const bool own = !config_.empty();  // the configuration that was asked for
    const std::shared_ptr<const Plan> plan =
        own ? gpu::find_gpu_kernel(kernel).plan_with(problem_from(desc), with, config_) : with.plan_for(desc);
    const DeviceCall call(driver_, tensors, plan->workspace_bytes());
    if (own && !plan->problem.empty())
      plan->run(call.args(), stream_);
    else if (setting == "graph")
      replay(with, desc, call.args());
    else
      with.forward(desc, call.args(), stream_);
    driver_.check(driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
    call.download_outputs(tensors);
  }

  void merge(const attune_merge_desc& host_desc, const attune_merge_args& args) override {
    const gpu::CurrentContext current(driver_, primary_);
    attune_merge_desc desc = host_desc;
    desc.device_kind = ATTUNE_CUDA;
    desc.device_index = device_index_;
    // By host address: an output may be one of the parts.
    std::map<const void*, std::pair<DeviceMemory, size_t>> copies;
    const auto copy = [&](const void* host, const attune_strides& strides, int64_t dim, int64_t element_bytes) {
      const int64_t elements =
          (desc.batch - 1) * strides.batch + (desc.rows - 1) * strides.row + (desc.heads - 1) * strides.head + dim;
      const auto bytes = static_cast<size_t>(std::max<int64_t>(elements, 0) * element_bytes);
      if (!copies.contains(host))
        copies[host] = {DeviceMemory(driver_, {static_cast<const std::byte*>(host), bytes}), bytes};
      return copies[host].first.as<void>();
    };
    const int64_t part_bytes = bytes_of(static_cast<Dtype>(desc.part_dtype));
    std::vector<const void*> part_o;
    std::vector<const float*> part_lse;
    for (int64_t i = 0; i < desc.parts; ++i) {
      part_o.push_back(copy(args.part_o[i], desc.part_o, desc.dim, part_bytes));
      part_lse.push_back(static_cast<float*>(copy(args.part_lse[i], desc.part_lse, 1, 4)));
    }
    attune_merge_args on_gpu = args;
    on_gpu.part_o = part_o.data();
    on_gpu.part_lse = part_lse.data();
    on_gpu.o = copy(args.o, desc.o, desc.dim, bytes_of(static_cast<Dtype>(desc.dtype)));
    if (args.lse != nullptr) on_gpu.lse = static_cast<float*>(copy(args.lse, desc.lse, 1, 4));
    context("").merge(desc, on_gpu, stream_);
    driver_.check(driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
    const auto bring_back = [&](void* host) {
      const auto& [memory, bytes] = copies[host];
      memory.download({static_cast<std::byte*>(host), bytes});
    };
    bring_back(args.o);
    if (args.lse != nullptr) bring_back(args.lse);
  }

 private:
  void replay(Context& with, const attune_forward_desc& desc, const attune_forward_args& args) {
    with.prepare(desc);
    gpu::CUgraph graph = nullptr;
    gpu::CUgraphExec executable = nullptr;
    driver_.check(driver_.cuStreamBeginCapture_v2(stream_, gpu::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                  "cuStreamBeginCapture");
    try {
      with.forward(desc, args, stream_);
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
  explicit CudaReference(int device_index) : device_index_(device_index) { runtime_.device(device_index); }

  ReferenceRows rows(const Tensors& tensors, std::span<const RowId> wanted) override {
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
    reference.run(call.args(), o.as<double>(), lse.as<double>(), nullptr);
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
};

}  // namespace

std::unique_ptr<Executor> make_cuda_executor(int device_index, const std::string& config) {
  return std::make_unique<CudaExecutor>(device_index, config);
}

std::unique_ptr<ReferenceSource> make_cuda_reference(int device_index) {
  return std::make_unique<CudaReference>(device_index);
}

}  // namespace attune::lab
