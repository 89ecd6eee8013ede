// Kernel "cpu/unfused": scores, softmax and values one after the other over the whole problem, each through full
// matrices in the workspace, from the same vector code as the fused kernels. The baseline they are compared with.
#include <cmath>

#include "core/error.hpp"
#include "cpu/isa.hpp"
#include "cpu/tasks.hpp"
#include "cpu/threads.hpp"
#include "dispatch/context.hpp"
#include "dispatch/kernel.hpp"

namespace attune::cpu {
namespace {

constexpr double largest_workspace = 0x1p40;

// Of one tile: the scores, and per row the largest one and the sum of weights.
uint64_t tile_bytes(const Problem& problem, const Level& level) {
  const auto rows = static_cast<uint64_t>(level.tile_rows);
  return rows * (static_cast<uint64_t>(problem.seq_k) * sizeof(float) + sizeof(float) + sizeof(double)) / 64 * 64 + 64;
}

// In double, because extents may be absurd where a problem is empty or a sequence length is only a bound.
double workspace_of(const Problem& problem, const Level& level) {
  const double stacked = static_cast<double>(problem.seq_q) * static_cast<double>(problem.group());
  const double tiles =
      static_cast<double>(problem.batch) * static_cast<double>(problem.heads_kv) * std::ceil(stacked / level.tile_rows);
  return tiles * static_cast<double>(tile_bytes(problem, level));
}

class UnfusedPlan final : public Plan {
 public:
  UnfusedPlan(const Kernel& of_kernel, const Problem& of_problem, const Level& level, Threads& threads)
      : Plan(of_kernel, of_problem),
        level_(level),
        threads_(threads),
        tile_bytes_(tile_bytes(problem, level)),
        workspace_bytes_(static_cast<uint64_t>(workspace_of(problem, level))),
        scratch_bytes_(level.scratch_bytes(problem)) {}

  void run(const Operands& operands, void*) const override {
    const Call call = make_call(problem, operands);
    const Tasks tasks(problem, operands, level_.tile_rows, 1);
    const auto each_tile = [&](const auto& step) {
      threads_.parallel_for(tasks.count(), [&](int64_t index) {
        Tasks::Task task;
        tasks.get(index, 0, task);
        step(task, tile(operands, index, task.block.count));
      });
    };
    each_tile([&](const Tasks::Task& task, const UnfusedTile& state) {
      const auto scratch = threads_.scratch(scratch_bytes_);
      level_.unfused_scores(call, task.block, task.block.seq_k, state, scratch.data());
    });
    each_tile([&](const Tasks::Task& task, const UnfusedTile& state) {
      level_.unfused_softmax(call, task.block.seq_k, state);
    });
    each_tile([&](const Tasks::Task& task, const UnfusedTile& state) {
      const auto scratch = threads_.scratch(scratch_bytes_);
      level_.unfused_values(call, task.block, task.block.seq_k, state, scratch.data());
    });
  }

  uint64_t workspace_bytes() const override { return workspace_bytes_; }

  std::string describe() const override {
    return fmt::format("level: {}, tiles of {} rows\nthreads: {}\n", level_.name, level_.tile_rows, threads_.size());
  }

 private:
  UnfusedTile tile(const Operands& operands, int64_t index, int count) const {
    char* at = static_cast<char*>(operands.workspace) + static_cast<uint64_t>(index) * tile_bytes_;
    UnfusedTile state;
    state.count = count;
    state.sums = reinterpret_cast<double*>(at);
    state.largest = reinterpret_cast<float*>(state.sums + level_.tile_rows);
    state.scores = state.largest + level_.tile_rows;
    return state;
  }

  const Level& level_;
  Threads& threads_;
  uint64_t tile_bytes_;
  uint64_t workspace_bytes_;
  size_t scratch_bytes_;
};

class Unfused final : public Kernel {
 public:
  std::string_view name() const override { return "cpu/unfused"; }
  DeviceKind device_kind() const override { return DeviceKind::cpu; }
  bool selectable() const override { return false; }

  std::string refusal(const Problem& problem, const Context&) const override {
    const double bytes = workspace_of(problem, best_level());
    if (bytes <= largest_workspace) return {};
    return fmt::format("its score matrices would take {:.3g} bytes; it allows {:.3g}", bytes, largest_workspace);
  }
  double predicted_seconds(const Problem& problem, const Context&) const override {
    return 1e-6 + useful_flops(problem) / 20e9;
  }
  std::unique_ptr<const Plan> plan(const Problem& problem, Context& context) const override {
    return std::make_unique<UnfusedPlan>(*this, problem, best_level(), context.threads());
  }
};
const Registration<Unfused> registration;

}  // namespace
}  // namespace attune::cpu
