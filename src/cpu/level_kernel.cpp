// How a problem is run on a level: rows or blocks, split keys or not, packed keys or not.
#include "cpu/level_kernel.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <numbers>

#include "core/error.hpp"
#include "cpu/isa.hpp"
#include "cpu/packed_keys.hpp"
#include "cpu/partials.hpp"
#include "cpu/task_runs.hpp"
#include "cpu/tasks.hpp"
#include "cpu/threads.hpp"
#include "dispatch/context.hpp"

namespace attune::cpu {

Call make_call(const Problem& problem, const Operands& operands) {
  Call call;
  call.problem = &problem;
  call.operands = &operands;
  call.group = problem.group();
  // A scale of 0 becomes queries of 0: -inf, the score of a hidden key, has no product with 0.
  const double scale = problem.scale == 0 ? 1 : std::abs(static_cast<double>(problem.scale));
  call.q_factor = problem.scale == 0 ? 0.0f : problem.scale < 0 ? -1.0f : 1.0f;
  if (problem.has(ATTUNE_SOFTCAP)) {
    call.cap = problem.softcap;
    double factor = scale / problem.softcap;
    if (factor > FLT_MAX) {
      call.score_factor = 0x1p64f;
      factor *= 0x1p-64;
    }
    // What is still beyond comes with a cap below 2^-64, and a score is off by no more than its cap.
    call.cap_factor = static_cast<float>(std::min<double>(factor, FLT_MAX));
  } else if (problem.has(ATTUNE_BIAS) && scale < 1) {
    call.score_factor = static_cast<float>(scale);
  } else {
    call.unit = scale;
    if (scale * std::numbers::log2e > FLT_MAX) {
      call.score_factor = 2;
      call.unit = scale / 2;
    }
    if (problem.has(ATTUNE_BIAS)) call.bias_factor = static_cast<float>(1 / call.unit);
  }
  const double factor = call.unit * std::numbers::log2e;
  call.exp2_high = static_cast<float>(factor);
  call.exp2_low = static_cast<float>(factor - static_cast<double>(call.exp2_high));
  return call;
}

namespace {

// Enough tasks for any machine this runs on. With fewer blocks the keys are split as well.
constexpr int64_t wanted_tasks = 64;
constexpr int64_t tasks_a_thread = 4;
constexpr int64_t keys_per_split = 512;
// Of few rows. The parts of four and more weigh as much as the keys they come from, unless those are more.
constexpr int64_t keys_per_split_of(double rows) { return rows < 4 ? keys_per_split : 2 * keys_per_split; }
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
    if (by_rows_) {
      // However many tasks there are: so a sequence has the same bits in any batch.
      splits_ = {.most = wanted_tasks, .keys = keys_per_split_of(stacked)};
      const auto fits = [&](int heads) {
        return problem.heads_kv % heads == 0 &&
               tasks_of(rows_, heads) * static_cast<double>(splits_.of(problem.seq_k)) >= wanted_tasks;
      };
      for (int heads = 2; heads <= max_task_heads && heads_are_neighbours(problem); ++heads)
        if (fits(heads)) heads_ = heads;
    } else if (const double tasks = tasks_of(rows_, 1); tasks > 0 && tasks < wanted_tasks) {
      const int64_t most = std::max<int64_t>((problem.seq_k + keys_per_split - 1) / keys_per_split, 1);
      splits_.most = std::min(most, static_cast<int64_t>(std::ceil(wanted_tasks / tasks)));
    }
    if (!by_rows_ && splits_.most == 1) {
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

  void run(const Operands& operands, void*) const override {
    const Call call = make_call(problem, operands);
    const Tasks tasks(problem, operands, rows_, heads_, splits_);
    if (packs_) return compute_by_heads(call, tasks);
    if (tasks.most_splits() > 1) return compute_by_splits(call, tasks);
    for_each(tasks.count(), [&](int64_t index) {
      Tasks::Task task;
      tasks.get(index, 0, task);
      const auto scratch = threads_.scratch(scratch_bytes_);
      compute(call, task.block, scratch.data());
    });
  }

  std::string describe() const override {
    const int used_threads = alone_ ? 1 : threads_.size();
    return fmt::format("path: {} of at most {} rows of {} KV heads, keys split {} ways\nthreads: {}\n",
                       by_rows_ ? "rows" : "blocks", rows_, heads_, splits_.of(problem.seq_k), used_threads);
  }

 private:
  // Tasks that share packed keys.
  void compute_by_heads(const Call& call, const Tasks& tasks) const {
    const auto packed_of = [&](int64_t head) {
      return PackedKeys(call, level_, head / problem.heads_kv, head % problem.heads_kv);
    };
    const int64_t splits = tasks.most_splits();
    const auto count_of = [&](int64_t head) { return tasks.count_of(head / problem.heads_kv) * splits; };
    TaskRuns runs(
        threads_, problem.batch * problem.heads_kv,
        [&](int64_t head) {
          const PackedKeys keys = packed_of(head);
          return TaskRuns::Size{.bytes = keys.bytes(), .parts = keys.parts(), .tasks = count_of(head)};
        },
        [&](int64_t head, int64_t part, char* packed) { packed_of(head).pack(part, packed); });
    std::vector<Partials> partials = partials_of(tasks);
    work_on(runs, [&](int64_t head, int64_t index, const char* packed, int64_t next, void* scratch) {
      Tasks::Task task;
      const int64_t split = index % splits;
      tasks.get_of(head / problem.heads_kv, head % problem.heads_kv, index / splits, split, task);
      task.block.packed = packed;
      // The last quarter fetches the next head's keys: much earlier, and they would be gone again.
      const int64_t count = count_of(head), first = count - (count + 3) / 4;
      if (next >= 0 && index >= first && rows_are_neighbours(problem))
        packed_of(next).share(index - first, count - first, task.block);
      compute_split(call, task, split, partials, scratch);
    });
  }

  // Tasks whose keys are split and not packed, in the order of memory: the splits of a task, unless the tasks beside it
  // read the same pages.
  void compute_by_splits(const Call& call, const Tasks& tasks) const {
    const int64_t splits = tasks.most_splits();
    const int64_t side_by_side = heads_are_neighbours(problem) ? problem.heads_kv / heads_ : 1;
    const int64_t tasks_of_run = side_by_side > 1 ? side_by_side : splits;
    TaskRuns runs(
        threads_, tasks.count() * splits / tasks_of_run,
        [&](int64_t) { return TaskRuns::Size{.bytes = 0, .parts = 0, .tasks = tasks_of_run}; }, nullptr);
    std::vector<Partials> partials = partials_of(tasks);
    work_on(runs, [&](int64_t run, int64_t index, const char*, int64_t, void* scratch) {
      Tasks::Task task;
      const int64_t split = side_by_side > 1 ? run % splits : index;
      tasks.get(side_by_side > 1 ? run / splits * side_by_side + index : run, split, task);
      compute_split(call, task, split, partials, scratch);
    });
  }

  // body(run, task, packed, next, scratch) for all tasks.
  template <typename Body>
  void work_on(TaskRuns& runs, const Body& body) const {
    const int64_t workers = alone_ ? 1 : threads_.size();
    for_each(workers, [&](int64_t index) {
      const auto scratch = threads_.scratch(scratch_bytes_);
      runs.work(index, workers, [&](int64_t run, int64_t task, const char* packed, int64_t next) {
        body(run, task, packed, next, scratch.data());
      });
    });
  }

  void compute(const Call& call, const Block& block, void* scratch) const {
    (by_rows_ ? level_.forward_rows : level_.forward_block)(call, block, scratch);
  }

  std::vector<Partials> partials_of(const Tasks& tasks) const {
    return std::vector<Partials>(tasks.most_splits() > 1 ? static_cast<size_t>(tasks.count()) : 0);
  }

  // Whoever ends the last split of a task joins them.
  void compute_split(const Call& call, Tasks::Task& task, int64_t split, std::vector<Partials>& partials,
                     void* scratch) const {
    if (split >= task.splits) return;
    if (task.splits == 1) return compute(call, task.block, scratch);
    Partials& of_task = partials[static_cast<size_t>(task.number)];
    const int64_t doubles = heads_ * partial_head_;
    double* const parts = of_task.memory(threads_, task.splits * doubles);
    task.block.partial = parts + split * doubles;
    task.block.partial_head = partial_head_;
    compute(call, task.block, scratch);
    if (!of_task.end_split(task.splits)) return;
    for (int head = 0; head < heads_; ++head, ++task.block.head_kv)
      level_.join(call, task.block, parts + head * partial_head_, task.splits, doubles);
    of_task.give_back();
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
  Splits splits_;
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
