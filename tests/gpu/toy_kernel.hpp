// A kernel as a newcomer would add it: device text, a class with four functions, one registration. It serves only
// problems with 77 heads, so that it never stands in the way of others.
#pragma once

#include "core/error.hpp"
#include "gpu/kernel.hpp"
#include "gpu/tensor_map.hpp"

namespace attune::gpu::toy {

inline constexpr int64_t heads = 77;

struct Params {
  device::TensorMap q;
  void* o;
  int64_t rows;
};

inline constexpr char device_text[] = R"(#pragma once
#include "kernels/common/types.cuh"
namespace attune::device::toy {
struct Variant { Dtype dtype = Dtype::f16; };
struct Config { int stages = 1; };
struct Params { TensorMap q; void* o; int64_t rows; };
#ifdef __CUDACC_RTC__
template <Variant variant, Config config>
__device__ void run(const Params& params) { static_cast<int*>(params.o)[threadIdx.x] = config.stages; }
#endif
}  // namespace attune::device::toy
)";

class ToyKernel final : public GpuKernel {
 public:
  std::string_view name() const override { return "test/toy"; }
  int64_t pointer_alignment(const Problem&) const override { return tensor_map_alignment; }
  std::string refusal_on(const Problem& problem, const DeviceProperties& device) const override {
    if (problem.heads_q != heads) return "it does not have 77 heads";
    if (device.major != 9) return "it is not sm_90";
    return tensor_map_refusal(map_of(problem));
  }
  std::vector<Configuration> configurations_on(const Problem&, const DeviceProperties&) const override {
    return {{".stages = 2", 1e-9}, {".stages = 3", 2e-9}};
  }
  Recipe recipe(const Problem& problem, const DeviceProperties&, std::string_view config) const override {
    jit::DeviceUnit unit;
    unit.name = "test/toy";
    unit.file = "kernels/test/toy.cuh";
    unit.scope = "attune::device::toy";
    unit.variant = jit::Initializer().add("dtype", static_cast<device::Dtype>(problem.dtype)).text();
    unit.config = config;
    unit.layout = {ATTUNE_SIZE_FACT(Params), ATTUNE_OFFSET_FACT(Params, o), ATTUNE_OFFSET_FACT(Params, rows)};
    unit.threads = 64;
    unit.smem_bytes = 1024;
    unit.cluster = {2, 1, 1};
    Params params{};
    params.rows = problem.seq_q;
    Step step = make_step(unit, {4, 1, 1}, params,
                          [map = map_of(problem)](Params& out, const Operands& operands, const Driver& driver) {
                            out.q = tensor_map(driver, map, operands.in(Operand::q));
                            out.o = operands.out(Operand::o);
                          });
    step.programmatic = true;
    Recipe recipe;
    recipe.steps.push_back(std::move(step));
    recipe.workspace_bytes = 512;
    return recipe;
  }

 private:
  static TensorMapSpec map_of(const Problem& problem) {
    const auto bytes = static_cast<uint64_t>(bytes_of(problem.dtype));
    TensorMapSpec spec;
    spec.rank = 3;
    spec.dims = {static_cast<uint64_t>(problem.dim_qk), static_cast<uint64_t>(problem.seq_q), heads};
    spec.stride_bytes = {static_cast<uint64_t>(problem.q.row) * bytes, static_cast<uint64_t>(problem.q.head) * bytes};
    spec.box = {32, 64, 1};
    spec.dtype = problem.dtype;
    spec.swizzle = CU_TENSOR_MAP_SWIZZLE_64B;
    return spec;
  }
};

}  // namespace attune::gpu::toy
