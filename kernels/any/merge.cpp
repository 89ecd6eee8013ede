// The host's side of kernel "any/merge".
#include "kernels/any/merge.cuh"

#include <algorithm>

#include "core/error.hpp"
#include "dispatch/context.hpp"
#include "gpu/kernel.hpp"
#include "jit/fields.hpp"
#include "kernels/any/call.hpp"

namespace attune::jit {

using MergeConfig = device::any_merge::Config;
template <>
inline constexpr auto fields<MergeConfig> = list(ATTUNE_FIELD(MergeConfig, warps));

}  // namespace attune::jit

namespace attune::any {
namespace {

using device::any_merge::Config;
using device::any_merge::Params;
using jit::text_of;

static_assert(device::any_merge::max_parts == ATTUNE_MERGE_MAX_PARTS);

// It serves every problem.
jit::DeviceUnit the_unit() {
  jit::DeviceUnit unit;
  unit.name = "any/merge";
  unit.file = "kernels/any/merge.cuh";
  unit.scope = "attune::device::any_merge";
  unit.config = text_of(Config{});
  unit.layout = {ATTUNE_SIZE_FACT(Params), ATTUNE_OFFSET_FACT(Params, lse_strides), ATTUNE_OFFSET_FACT(Params, dtype)};
  unit.threads = Config{}.warps * 32;
  unit.smem_bytes = sizeof(device::any_merge::SharedStorage);
  return unit;
}

device::any_merge::Strides strides_of(const attune_strides& s) { return {s.batch, s.row, s.head}; }

Params constants_of(const Problem& problem) {
  Params params{};
  params.part_o_strides = strides_of(problem.part_o);
  params.part_lse_strides = strides_of(problem.part_lse);
  params.o_strides = strides_of(problem.o);
  params.lse_strides = strides_of(problem.lse);
  params.batch = problem.batch;
  params.heads = problem.heads_q;
  params.rows = problem.seq_q;
  params.parts = problem.parts;
  params.dim = static_cast<int32_t>(problem.dim_v);
  params.part_dtype = device_dtype(problem.part_dtype);
  params.dtype = device_dtype(problem.dtype);
  return params;
}

class Merge final : public gpu::GpuKernel {
 public:
  std::string_view name() const override { return "any/merge"; }
  const Operation& operation() const override { return merge_operation; }

  std::string refusal_on(const Problem&, const gpu::DeviceProperties& device) const override {
    if (device.capability() < 80) return fmt::format("{} is older than sm_80", device.arch());
    return {};
  }

  // Memory limits it.
  std::vector<Configuration> configurations_on(const Problem& problem, const gpu::DeviceProperties&) const override {
    constexpr double bytes_per_second = 2e12;
    return {{the_unit().config, 3e-6 + compulsory_bytes(problem) / bytes_per_second}};
  }

  gpu::Recipe recipe(const Problem& problem, const gpu::DeviceProperties&, std::string_view) const override {
    const int64_t rows = problem.batch * problem.heads_q * problem.seq_q;
    const bool with_lse = problem.has(ATTUNE_LSE);
    return {{gpu::make_step(the_unit(), grid_for((rows + Config{}.warps - 1) / Config{}.warps), constants_of(problem),
                            [with_lse](Params& out, const Operands& operands, const gpu::Driver&) {
                              std::copy_n(operands.parts(Operand::part_o), out.parts, out.part_o);
                              std::copy_n(operands.parts<float>(Operand::part_lse), out.parts, out.part_lse);
                              out.o = operands.out(Operand::o);
                              out.lse = with_lse ? operands.out<float>(Operand::lse) : nullptr;
                            })},
            0};
  }

  void make_ready(int device_index, Context& context) const override { context.gpu().load(the_unit(), device_index); }
  bool is_ready(int device_index, const Context& context) const override {
    return context.gpu().is_loaded(the_unit(), device_index);
  }
};
const Registration<Merge> registration;

}  // namespace
}  // namespace attune::any
