// How a problem is run on a level: rows or blocks, split keys or not, packed keys or not.
#include "cpu/level_kernel.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <numbers>

#include "core/error.hpp"
#include "cpu/head_runs.hpp"
#include "cpu/isa.hpp"
#include "cpu/packed_keys.hpp"
#include "cpu/tasks.hpp"
#include "cpu/threads.hpp"
#include "dispatch/context.hpp"

namespace attune::cpu {

Call make_call(const Problem& problem, const attune_forward_args& args) {
  Call call;
  call.problem = &problem;
  call.args = &args;
  call.group = problem.group();
  // A scale of 0 becomes queries of 0: -inf, the score of a hidden key, has no product with 0.
  const double scale = problem.scale == 0 ? 1 : std::abs(static_cast<double>(problem.scale));
  call.q_factor = problem.scale == 0 ? 0.0f : problem.scale < 0 ? -1.0f : 1.0f;
  if (problem.has(ATTUNE_SOFTCAP)) {
    call.cap = problem.softcap;
    call.cap_factor = static_cast<float>(std::min<double>(scale / problem.softcap, FLT_MAX));
  } else if (!problem.has(ATTUNE_BIAS)) {
    call.unit = scale;
  } else if (scale >= 1) {
    call.unit = scale;
    call.bias_factor = static_cast<float>(1 / scale);
  } else {
    call.score_factor = static_cast<float>(scale);
  }
  const double factor = std::min<double>(call.unit * std::numbers::log2e, FLT_MAX);
  call.exp2_high = static_cast<float>(factor);
  call.exp2_low = static_cast<float>(factor - static_cast<double>(call.exp2_high));
  return call;
}

namespace {

// Enough tasks for any machine this runs on; fewer than this, and the keys are split as well.
constexpr int64_t wanted_tasks = 64;
constexpr int64_t tasks_a_thread = 4;
constexpr int64_t least_keys_per_split = 512;
// Packed keys of a head that more than two tasks share may take this much memory; beyond, each task packs for itself.
constexpr double most_packed_bytes = 64 << 20;
// Waking sleeping threads takes about this long.
constexpr double least_seconds_for_threads = 10e-6;

// The keys of a head lie beside each other in memory. Where they do not, each would be on a page of its own, and to
// fetch them during the products would delay those by more than it saves.
bool rows_are_neighbours(const Problem& problem) {
  return problem.k.row == problem.dim_qk && problem.v.row == problem.dim_v;
}

// The rows of neighbouring KV heads lie beside each other in memory, those of neighbouring keys do not.
bool heads_are_neighbours(const Problem& problem) {
  const auto are = [](const attune_strides& strides, int64_t dim) {
    return strides.head >= dim && strides.head <= 2 * dim && strides.row > strides.head;
  };
  return are(problem.k, problem.dim_qk) && are(problem.v, problem.dim_v);
}

class LevelPlan final : public Plan {
 public:
  LevelPlan(const Kernel& of_kernel, const Problem& of_problem, const Level& level, Context& context)
      : Plan(of_kernel, of_problem),
        level_(level),
        threads_(context.threads()),
        scratch_bytes_(level.scratch_bytes(problem)) {
    alone_ = kernel.predicted_seconds(problem, context) < least_seconds_for_threads;
    // In double, because an empty problem may have extents whose product overflows.
    const double stacked = static_cast<double>(problem.seq_q) * static_cast<double>(problem.group());
    by_rows_ = stacked <= level.few_rows(problem);
    rows_ = by_rows_ ? std::max(static_cast<int>(stacked), 1) : level.task_rows(problem);
    const auto tasks_of = [&](int rows, int heads) {
      const int64_t tasks_of_heads = problem.heads_kv / heads;
      return static_cast<double>(problem.batch) * static_cast<double>(tasks_of_heads) * std::ceil(stacked / rows);
    };
    const int most_rows = rows_;
    while (rows_ > least_task_rows && tasks_of(rows_, 1) < wanted_tasks) rows_ /= 2;
    const int64_t most_splits = std::max<int64_t>((problem.seq_k + least_keys_per_split - 1) / least_keys_per_split, 1);
    if (by_rows_ && heads_are_neighbours(problem)) {
      const auto fits = [&](int heads) {
        return problem.heads_kv % heads == 0 &&
               tasks_of(rows_, heads) * static_cast<double>(most_splits) >= wanted_tasks;
      };
      while (heads_ < max_task_heads && fits(2 * heads_)) heads_ *= 2;
    }
    const double tasks = tasks_of(rows_, heads_);
    if (tasks > 0 && tasks < wanted_tasks)
      splits_ = std::min(most_splits, static_cast<int64_t>(std::ceil(wanted_tasks / tasks)));
    if (!by_rows_ && splits_ == 1) {
      // Results depend on how keys are split, not on how rows are: few threads may have fewer and larger tasks.
      const int threads = alone_ ? 1 : threads_.size();
      rows_ = most_rows;
      while (rows_ > least_task_rows && tasks_of(rows_, 1) < std::min(wanted_tasks, tasks_a_thread * threads))
        rows_ /= 2;
    }
    packs_ =
        !by_rows_ && (level.needs_packed(problem) || (stacked > 2.0 * rows_ && packed_bytes() <= most_packed_bytes));
    partial_head_ = rows_ * (problem.dim_v + partial_header);
  }

  void run(const attune_forward_args& args, void*) const override {
    const Call call = make_call(problem, args);
    const Tasks tasks(problem, args, rows_, heads_);
    if (splits_ == 1) return compute_all(call, tasks, nullptr);
    const size_t sums = static_cast<size_t>(tasks.count() * splits_ * heads_ * partial_head_);
    const auto memory = threads_.scratch(sums * sizeof(double));
    auto* const partials = static_cast<double*>(memory.data());
    compute_all(call, tasks, partials);
    for_each(tasks.count(), [&](int64_t index) {
      Tasks::Task task;
      tasks.get(index, 0, 1, task);
      const double* parts = partial_of(partials, task, 0);
      for (int head = 0; head < heads_; ++head, ++task.block.head_kv, parts += partial_head_)
        level_.join(call, task.block, parts, splits_, heads_ * partial_head_);
    });
  }

  std::string describe() const override {
    const int used_threads = alone_ ? 1 : threads_.size();
    return fmt::format("path: {} of at most {} rows of {} KV heads, keys split {} ways\nthreads: {}\n",
                       by_rows_ ? "rows" : "blocks", rows_, heads_, splits_, used_threads);
  }

 private:
  // Every task and split, in any order; partials: NULL, or room for their results.
  void compute_all(const Call& call, const Tasks& tasks, double* partials) const {
    if (packs_) return compute_by_heads(call, tasks, partials);
    for_each(tasks.count() * splits_, [&](int64_t index) {
      Tasks::Task task;
      tasks.get(index / splits_, index % splits_, splits_, task);
      compute(call, task, index % splits_, partials);
    });
  }

  void compute_by_heads(const Call& call, const Tasks& tasks, double* partials) const {
    const auto packed_of = [&](int64_t head) {
      return PackedKeys(call, level_, head / problem.heads_kv, head % problem.heads_kv);
    };
    const HeadRuns::Work work{
        .size =
            [&](int64_t head) {
              const PackedKeys keys = packed_of(head);
              const int64_t count = tasks.count_of(head / problem.heads_kv) * splits_;
              return HeadRuns::Size{.bytes = keys.bytes(), .parts = keys.parts(), .tasks = count};
            },
        .pack = [&](int64_t head, int64_t part, char* packed) { packed_of(head).pack(part, packed); },
        .compute =
            [&](int64_t head, int64_t index, const char* packed, int64_t next) {
              Tasks::Task task;
              tasks.get_of(head / problem.heads_kv, head % problem.heads_kv, index / splits_, index % splits_, splits_,
                           task);
              task.block.packed = packed;
              const int64_t count = tasks.count_of(head / problem.heads_kv) * splits_;
              // The last quarter fetches the next head's keys: much earlier, and they would be gone again.
              const int64_t first = count - (count + 3) / 4;
              if (next >= 0 && index >= first && rows_are_neighbours(problem))
                packed_of(next).share(index - first, count - first, task.block);
              compute(call, task, index % splits_, partials);
            },
    };
    HeadRuns runs(threads_, problem.batch * problem.heads_kv, work);
    const int64_t workers = alone_ ? 1 : threads_.size();
    for_each(workers, [&](int64_t index) { runs.work(index, workers); });
  }

  void compute(const Call& call, Tasks::Task& task, int64_t split, double* partials) const {
    if (partials != nullptr) {
      task.block.partial = partial_of(partials, task, split);
      task.block.partial_head = partial_head_;
    }
    const auto scratch = threads_.scratch(scratch_bytes_);
    (by_rows_ ? level_.forward_rows : level_.forward_block)(call, task.block, scratch.data());
  }

  double* partial_of(double* partials, const Tasks::Task& task, int64_t split) const {
    return partials + (task.number * splits_ + split) * heads_ * partial_head_;
  }

  // Of one head, at most.
  double packed_bytes() const {
    const auto keys = static_cast<double>(problem.packed() ? problem.total_k : problem.seq_k);
    return keys / packed_keys * static_cast<double>(level_.packed_bytes(problem));
  }

  template <typename Body>
  void for_each(int64_t count, const Body& body) const {
    if (!alone_) return threads_.parallel_for(count, body);
    for (int64_t i = 0; i < count; ++i) body(i);
  }

  const Level& level_;
  Threads& threads_;
  size_t scratch_bytes_;
  bool alone_ = false;
  bool by_rows_ = false;
  bool packs_ = false;
  int rows_ = 0, heads_ = 1;
  int64_t splits_ = 1;
  int64_t partial_head_ = 0;  // doubles of one head's partial results
};

// One core of a server of 2023, roughly. Only the order of the levels matters, and whether a problem is worth threads.
constexpr double portable_flops_per_second = 25e9;
constexpr double bytes_per_second = 15e9;

}  // namespace

bool LevelKernel::selectable() const { return is_selectable(level_); }

std::string LevelKernel::refusal(const Problem&, const Context&) const { return cpu::refusal(level_); }

double LevelKernel::predicted_seconds(const Problem& problem, const Context&) const {
  return 1e-6 + useful_flops(problem) / (portable_flops_per_second * speed_) +
         compulsory_bytes(problem) / bytes_per_second;
}

std::unique_ptr<const Plan> LevelKernel::plan(const Problem& problem, Context& context) const {
  return std::make_unique<LevelPlan>(*this, problem, level_, context);
}

}  // namespace attune::cpu
