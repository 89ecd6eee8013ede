#include "lab/trial/callee_executor.hpp"

#include <algorithm>
#include <optional>

#include "core/error.hpp"
#include "lab/measure/device_tensors.hpp"

namespace attune::lab {
namespace {

constexpr size_t workspace_zone = 4096;  // before and after the workspace

// A workspace between two zones, all of it poison: it holds nothing that a call may rely on.
class GuardedWorkspace {
 public:
  explicit GuardedWorkspace(uint64_t bytes) : bytes_(bytes), all_(bytes + 2 * workspace_zone, poison) {}

  void* data() { return all_.data() + workspace_zone; }
  bool intact() const {
    const auto untouched = [](std::byte byte) { return byte == poison; };
    return std::all_of(all_.begin(), all_.begin() + workspace_zone, untouched) &&
           std::all_of(all_.begin() + static_cast<ptrdiff_t>(workspace_zone + bytes_), all_.end(), untouched);
  }

 private:
  static constexpr std::byte poison{0xff};
  uint64_t bytes_;
  std::vector<std::byte, AlignedAllocator<std::byte>> all_;
};

class CalleeExecutor final : public Executor {
 public:
  CalleeExecutor(Entrant entrant, Gpu* gpu, std::function<void(bool)> at_work)
      : entrant_(std::move(entrant)), gpu_(gpu), at_work_(std::move(at_work)) {}

  DeviceKind device_kind() const override { return gpu_ == nullptr ? DeviceKind::cpu : DeviceKind::cuda; }

  Choice choose(std::string_view, const Problem& problem) override {
    const Working working(at_work_);
    try {
      callee_.reset();
      callee_ = callee_of(entrant_, problem);
      made_for_ = problem;
    } catch (const Error& error) {
      if (error.status == ATTUNE_UNSUPPORTED) return {"", error.what()};
      throw;
    }
    return {std::string(callee_->name()), entrant_.option()};
  }

  std::vector<std::string> settings() const override { return {"as it is"}; }

  void run(std::string_view kernel, Tensors& tensors, std::string_view) override {
    const Problem problem = gpu_ == nullptr ? without_spare_rows(tensors) : tensors.problem;
    if (!callee_ || problem != made_for_)
      if (const Choice choice = choose(kernel, problem); !choice.supported())
        fail(ATTUNE_UNSUPPORTED, "{}", choice.why);
    if (gpu_ != nullptr)
      on_gpu(tensors);
    else
      on_cpu(tensors);
  }

 private:
  class Working {
   public:
    explicit Working(const std::function<void(bool)>& say) : say_(say) { say_(true); }
    Working(const Working&) = delete;
    Working& operator=(const Working&) = delete;
    ~Working() { say_(false); }

   private:
    const std::function<void(bool)>& say_;
  };

  void on_cpu(Tensors& tensors) {
    GuardedWorkspace workspace(callee_->workspace_bytes());
    Operands operands = tensors.operands();
    if (callee_->workspace_bytes() > 0) {
      operands.workspace = workspace.data();
      operands.workspace_bytes = callee_->workspace_bytes();
    }
    {
      const Working working(at_work_);
      callee_->run(operands, nullptr);
    }
    if (!workspace.intact())
      fail(ATTUNE_INTERNAL_ERROR, "bytes beside the workspace of {} were written", callee_->workspace_bytes());
  }

  // The first call may do what no capture allows. What is judged is what will be timed: a graph, on tensors that only
  // it has seen.
  void on_gpu(Tensors& tensors) {
    const Working working(at_work_);
    {
      const DeviceTensors first(*gpu_, tensors, callee_->workspace_bytes(), 0);
      callee_->run(first.operands(), gpu_->stream());
      gpu_->synchronise();
    }
    const DeviceTensors judged(*gpu_, tensors, callee_->workspace_bytes(), 1);
    const RecordedGraph graph =
        gpu_->record(GraphEdges::full, [&](StreamHandle stream) { callee_->run(judged.operands(), stream); });
    gpu_->replay(graph.handle);
    gpu_->synchronise();
    gpu_->release_graph(graph.handle);
    judged.download(tensors);
  }

  Entrant entrant_;
  Gpu* gpu_;
  std::function<void(bool)> at_work_;
  std::unique_ptr<Callee> callee_;
  Problem made_for_;
};

}  // namespace

std::unique_ptr<Executor> make_callee_executor(Entrant entrant, Gpu* gpu, std::function<void(bool)> at_work) {
  return std::make_unique<CalleeExecutor>(std::move(entrant), gpu, std::move(at_work));
}

}  // namespace attune::lab
