#include "lab/ladder/unfused.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <limits>
#include <sstream>

#include "core/error.hpp"
#include "gpu/device.hpp"
#include "gpu/driver.hpp"
#include "jit/nvrtc.hpp"
#include "lab/try/kernel_build.hpp"

namespace attune::lab {
namespace {

constexpr uint64_t alignment = 256;

// Memory of the GPU for as long as algorithms are compared.
class Scratch {
 public:
  Scratch(const gpu::Driver& driver, uint64_t bytes) : driver_(driver) {
    driver.check(driver.cuMemAlloc_v2(&memory_, bytes), "unfused, comparing algorithms");
    driver.check(driver.cuMemsetD8_v2(memory_, 0, bytes), "unfused, comparing algorithms");
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { driver_.cuMemFree_v2(memory_); }
  void* data() const { return reinterpret_cast<void*>(memory_); }

 private:
  const gpu::Driver& driver_;
  gpu::CUdeviceptr memory_ = 0;
};

uint64_t bytes_of(const GemmMatrix& matrix, int64_t batch) {
  const int64_t elements = matrix.batch_step * (batch - 1) + matrix.step * matrix.columns;
  return static_cast<uint64_t>(elements) * (matrix.dtype == Dtype::f32 ? 4 : 2);
}

class UnfusedCallee final : public Callee {
 public:
  UnfusedCallee(const std::string& path, const Problem& problem, std::string name)
      : problem_(problem),
        name_(std::move(name)),
        driver_(gpu::driver()),
        softmax_(unfused_softmax(path)),
        plan_(unfused_plan(problem)),
        lt_(CublasLt::get()) {
    const gpu::Device device(driver_, problem_.device_index);
    launch_ = launch_of(softmax_, problem_);
    const KernelBuild build =
        build_kernel(softmax_, problem_, device.properties().arch(), jit::find_nvrtc(driver_.major()));
    driver_.check(driver_.cuModuleLoadData(&module_, build.compiled.cubin.data()), name_.c_str());
    driver_.check(driver_.cuModuleGetFunction(&function_, module_, build.info.kernel.c_str()), name_.c_str());
    scores_ = quickest(plan_.scores, "scores");
    outputs_ = quickest(plan_.outputs, "outputs");
  }
  UnfusedCallee(const UnfusedCallee&) = delete;
  UnfusedCallee& operator=(const UnfusedCallee&) = delete;
  ~UnfusedCallee() override { driver_.cuModuleUnload(module_); }

  std::string_view name() const override { return name_; }
  uint64_t workspace_bytes() const override { return plan_.workspace_bytes; }

  void run(const Operands& operands, void* stream) override {
    auto* const workspace = static_cast<std::byte*>(operands.workspace);
    std::byte* const scores = workspace + plan_.scores_at;
    std::byte* const weights = workspace + plan_.weights_at;
    void* const gemm = workspace + plan_.gemm_at;
    const auto of = [&](const void* data, int64_t step, int64_t sequence) {
      return static_cast<const std::byte*>(data) + step * sequence * 2;
    };
    for (int64_t b = 0; b < problem_.batch; ++b)
      lt_.run(plan_.scores, scores_, of(operands.in(Operand::k), plan_.kv_step, b),
              of(operands.in(Operand::q), plan_.q_step, b), scores + plan_.score_step * b * 4, gemm, stream);
    launch_softmax(scores, weights, problem_.has(ATTUNE_LSE) ? operands.out(Operand::lse) : workspace + plan_.lse_at,
                   stream);
    for (int64_t b = 0; b < problem_.batch; ++b)
      lt_.run(plan_.outputs, outputs_, of(operands.in(Operand::v), plan_.kv_step, b), of(weights, plan_.score_step, b),
              static_cast<std::byte*>(operands.out(Operand::o)) + plan_.o_step * b * 2, gemm, stream);
  }

  Facts facts() const override { return facts_; }

 private:
  void launch_softmax(void* scores, void* weights, void* lse, void* stream) {
    Operands operands;
    operands.set(Operand::q, scores);
    operands.set(Operand::o, weights);
    std::vector<KernelArgument> arguments = arguments_of(softmax_, problem_, operands, lse);
    std::vector<void*> pointers;
    for (KernelArgument& argument : arguments) pointers.push_back(argument.bytes.data());
    const gpu::CUlaunchConfig config{launch_.grid[0],
                                     launch_.grid[1],
                                     launch_.grid[2],
                                     launch_.threads,
                                     1,
                                     1,
                                     launch_.shared_bytes,
                                     static_cast<gpu::CUstream>(stream),
                                     nullptr,
                                     0};
    driver_.check(driver_.cuLaunchKernelEx(&config, function_, pointers.data(), nullptr), name_.c_str());
  }

  GemmAlgorithm quickest(const Gemm& gemm, const char* what) {
    const std::vector<GemmAlgorithm> all = lt_.algorithms(gemm, gemm_workspace_bytes, most_algorithms);
    if (all.empty()) fail(ATTUNE_UNSUPPORTED, "{}: cublasLt proposes no algorithm for the {}", name_, what);
    const Scratch a(driver_, bytes_of(gemm.a, gemm.batch)), b(driver_, bytes_of(gemm.b, gemm.batch)),
        d(driver_, bytes_of(gemm.d, gemm.batch)), workspace(driver_, gemm_workspace_bytes);
    gpu::CUevent begin = nullptr, end = nullptr;
    driver_.check(driver_.cuEventCreate(&begin, 0), name_.c_str());
    driver_.check(driver_.cuEventCreate(&end, 0), name_.c_str());
    size_t best = 0;
    float least = std::numeric_limits<float>::infinity();
    for (size_t i = 0; i < all.size(); ++i)
      for (int turn = 0; turn < 4; ++turn) {  // the first one loads the kernel
        driver_.check(driver_.cuEventRecord(begin, nullptr), name_.c_str());
        lt_.run(gemm, all[i], a.data(), b.data(), d.data(), workspace.data(), nullptr);
        driver_.check(driver_.cuEventRecord(end, nullptr), name_.c_str());
        driver_.check(driver_.cuEventSynchronize(end), name_.c_str());
        float milliseconds = 0;
        driver_.check(driver_.cuEventElapsedTime(&milliseconds, begin, end), name_.c_str());
        if (turn == 0 || milliseconds >= least) continue;
        least = milliseconds;
        best = i;
      }
    driver_.cuEventDestroy_v2(begin);
    driver_.cuEventDestroy_v2(end);
    facts_[fmt::format("algorithm of the {}", what)] = fmt::format("{} of {}", best + 1, all.size());
    return all[best];
  }

  Problem problem_;
  std::string name_;
  const gpu::Driver& driver_;
  KernelFile softmax_;
  UnfusedPlan plan_;
  const CublasLt& lt_;
  KernelLaunch launch_;
  gpu::CUmodule module_ = nullptr;
  gpu::CUfunction function_ = nullptr;
  GemmAlgorithm scores_, outputs_;
  Facts facts_;
};

}  // namespace

std::string unfused_refusal(const Problem& problem) {
  if ((problem.features & ~(ATTUNE_LSE | ATTUNE_SCALE)) != 0)
    return "it computes no features but causal masks, a scale and lse";
  if (problem.dtype == Dtype::f32) return "it does not support f32";
  if (problem.heads_q != problem.heads_kv) return "it does not support groups: heads are the batch of one product";
  if (problem.dim_qk != problem.dim_v || problem.dim_qk % 8 != 0) return "it supports only d == dv, multiples of 8";
  if (problem.empty() || problem.seq_k == 0) return "it needs at least one row and one key";
  Problem dense = problem;
  set_contiguous(dense, Layout::bshd);
  if (problem != dense) return "its tensors are dense and bshd";
  return "";
}

UnfusedPlan unfused_plan(const Problem& p) {
  const int64_t heads = p.heads_q, dim = p.dim_qk, row_step = heads * dim;
  const int64_t key_step = (p.seq_k + 7) / 8 * 8;  // 16 bytes: what the tensor cores' loads want
  UnfusedPlan plan;
  const GemmMatrix q{p.dtype, dim, p.seq_q, row_step, dim}, kv{p.dtype, dim, p.seq_k, row_step, dim};
  const GemmMatrix scores{Dtype::f32, p.seq_k, p.seq_q, key_step, p.seq_q * key_step};
  GemmMatrix weights = scores;
  weights.dtype = p.dtype;
  plan.scores = {true, kv, q, scores, heads};
  plan.outputs = {false, kv, weights, q, heads};
  plan.q_step = plan.o_step = p.seq_q * row_step;
  plan.kv_step = p.seq_k * row_step;
  plan.score_step = heads * p.seq_q * key_step;
  uint64_t at = 0;
  const auto place = [&](uint64_t bytes) {
    const uint64_t begin = at;
    at = (at + bytes + alignment - 1) / alignment * alignment;
    return begin;
  };
  plan.scores_at = place(static_cast<uint64_t>(plan.score_step * p.batch) * 4);
  plan.weights_at = place(static_cast<uint64_t>(plan.score_step * p.batch) * 2);
  plan.lse_at = place(static_cast<uint64_t>(p.batch * heads * p.seq_q) * 4);
  plan.gemm_at = place(gemm_workspace_bytes);
  plan.workspace_bytes = at;
  return plan;
}

KernelFile unfused_softmax(const std::string& path) {
  KernelFile file;
  file.path = path;
  std::ifstream stream(path);
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream) fail(ATTUNE_INVALID_ARGUMENT, "{}: cannot be read", path);
  file.text = text.str();
  file.entry = "softmax";
  file.threads = "256";
  file.grid = {"q", "h", "b"};
  file.shared = "2 * 8 * 4";
  file.arguments = {"Q", "O", "LSE", "h", "q", "k", "ceil_div(k, 8) * 8", "scale", "causal"};
  return file;
}

std::unique_ptr<Callee> unfused_callee(const std::string& path, const Problem& problem, std::string name) {
  if (problem.device_kind != DeviceKind::cuda) fail(ATTUNE_UNSUPPORTED, "{}: it runs on a GPU", name);
  if (const std::string why = unfused_refusal(problem); !why.empty()) fail(ATTUNE_UNSUPPORTED, "{}: {}", name, why);
  return std::make_unique<UnfusedCallee>(path, problem, std::move(name));
}

}  // namespace attune::lab
