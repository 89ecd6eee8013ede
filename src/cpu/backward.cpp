// Kernel "cpu/bwd": the gradients of attention, in blocks of rows by keys. The scores of a block are computed anew from
// q and k and the log-sum-exp that the forward pass gave, once for dk and dv, once for dq, and once for dbias.
//
// Each output has tasks of its own, and every sum runs in one order within one task, so that the bits do not depend on
// the number of threads. Sums are in float32; those of dsink and dbias, which may run over all rows, in float64.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/convert.hpp"
#include "core/visibility.hpp"
#include "cpu/isa.hpp"
#include "cpu/threads.hpp"
#include "dispatch/context.hpp"
#include "kernels/attention/visibility.hpp"

namespace attune::cpu {
namespace {

constexpr int64_t block_rows_q = 64, block_keys = 64;
constexpr float infinity = std::numeric_limits<float>::infinity();

int64_t blocks_of(int64_t count, int64_t block) { return (count + block - 1) / block; }
int64_t padded(int64_t dim) { return blocks_of(dim, float_block_lanes) * float_block_lanes; }

int64_t row_offset(const Problem& p, const attune_strides& strides, int64_t batch, int64_t row, int64_t head) {
  return (p.packed() ? 0 : batch * strides.batch) + row * strides.row + head * strides.head;
}

int64_t score_offset(const attune_score_strides& strides, int64_t batch, int64_t head, int64_t row, int64_t key) {
  return batch * strides.batch + head * strides.head + row * strides.query + key * strides.key;
}

// What the functions below share: the problem, the tensors, and one thread's working memory.
class Blocks {
 public:
  Blocks(const Problem& problem, const Operands& operands, const Level& level, void* scratch)
      : p_(problem),
        operands_(operands),
        level_(level),
        width_qk_(padded(problem.dim_qk)),
        width_v_(padded(problem.dim_v)) {
    float* next = static_cast<float*>(scratch);
    const auto take = [&next](int64_t floats) {
      float* const block = next;
      next += floats;
      return block;
    };
    q_ = take(block_rows_q * width_qk_);
    dout_ = take(block_rows_q * width_v_);
    k_ = take(block_keys * width_qk_);
    v_ = take(block_keys * width_v_);
    k_columns_ = take(block_keys * width_qk_);
    v_columns_ = take(block_keys * width_v_);
    sums_qk_ = take(block_keys * width_qk_);
    sums_v_ = take(block_keys * width_v_);
    weights_ = take(block_rows_q * block_keys);
    gradients_ = take(block_rows_q * block_keys);
    bias_ = take(block_keys);
    one_row_ = take(width_v_);
  }

  static size_t scratch_bytes(const Problem& p) {
    const int64_t qk = padded(p.dim_qk), v = padded(p.dim_v);
    return static_cast<size_t>(4 * block_keys * (qk + v) + 2 * block_rows_q * block_keys + block_keys + v) *
           sizeof(float);
  }

  // dk and dv of a block of keys: the sums over the rows of every query head that shares the KV head.
  void keys(int64_t batch, int64_t head_kv, int64_t first) {
    const Sequence s = sequence_of(p_, operands_, batch);
    if (first >= s.stored_k) return;
    std::fill_n(sums_qk_, block_keys * width_qk_, 0.0f);
    std::fill_n(sums_v_, block_keys * width_v_, 0.0f);
    if (first < s.seq_k) {
      load_keys(s, batch, head_kv, first);
      for (int64_t head = head_kv * p_.group(); head < (head_kv + 1) * p_.group(); ++head)
        for (int64_t row = 0; row < s.seq_q; row += block_rows_q) {
          if (!find_ranges(s, row)) continue;
          load_rows(s, batch, head, row);
          score(batch, head, true);
          multiply({.a = weights_,
                    .a_row = 1,
                    .a_depth = block_keys,
                    .b = dout_,
                    .b_pitch = width_v_,
                    .to = sums_v_,
                    .to_pitch = width_v_,
                    .rows = keys_,
                    .columns = width_v_,
                    .depth = rows_,
                    .add = true});
          multiply({.a = gradients_,
                    .a_row = 1,
                    .a_depth = block_keys,
                    .b = q_,
                    .b_pitch = width_qk_,
                    .to = sums_qk_,
                    .to_pitch = width_qk_,
                    .rows = keys_,
                    .columns = width_qk_,
                    .depth = rows_,
                    .add = true});
        }
    }
    for (int64_t j = 0; j < std::min(block_keys, s.stored_k - first); ++j) {
      const int64_t row = s.first_row_k + first + j;
      store(Operand::dk, p_.dk, batch, row, head_kv, sums_qk_ + j * width_qk_, p_.dim_qk, p_.scale);
      store(Operand::dv, p_.dv, batch, row, head_kv, sums_v_ + j * width_v_, p_.dim_v, 1);
    }
  }

  // dq of a block of rows.
  void rows(int64_t batch, int64_t head, int64_t first) {
    const Sequence s = sequence_of(p_, operands_, batch);
    if (first >= s.stored_q) return;
    std::fill_n(sums_qk_, block_rows_q * width_qk_, 0.0f);
    if (first < s.seq_q) {
      load_rows(s, batch, head, first);
      for (int64_t key = 0; key < s.seq_k; key += block_keys) {
        first_key_ = key;
        keys_ = std::min(block_keys, s.seq_k - key);
        if (!find_ranges(s, first)) continue;
        load_keys(s, batch, head / p_.group(), key);
        score(batch, head, true);
        multiply({.a = gradients_,
                  .a_row = block_keys,
                  .a_depth = 1,
                  .b = k_,
                  .b_pitch = width_qk_,
                  .to = sums_qk_,
                  .to_pitch = width_qk_,
                  .rows = rows_,
                  .columns = width_qk_,
                  .depth = keys_,
                  .add = true});
      }
    }
    for (int64_t i = 0; i < std::min(block_rows_q, s.stored_q - first); ++i)
      store(Operand::dq, p_.dq, batch, s.first_row_q + first + i, head, sums_qk_ + i * width_qk_, p_.dim_qk, p_.scale);
  }

  // Adds the gradients of a block of scores to sums[row * row_pitch + key * key_pitch].
  void scores(int64_t batch, int64_t head, int64_t first, int64_t key, double* sums, int64_t row_pitch,
              int64_t key_pitch) {
    const Sequence s = sequence_of(p_, operands_, batch);
    if (first >= s.seq_q || key >= s.seq_k) return;
    first_key_ = key;
    keys_ = std::min(block_keys, s.seq_k - key);
    if (!find_ranges(s, first)) return;
    load_keys(s, batch, head / p_.group(), key);
    load_rows(s, batch, head, first);
    score(batch, head, false);
    for (int64_t i = 0; i < rows_; ++i)
      for (int64_t j = 0; j < keys_; ++j)
        sums[i * row_pitch + j * key_pitch] += static_cast<double>(gradients_[i * block_keys + j]);
  }

  // The gradient of a head's sink: what its weight in each row takes from that row.
  double sink(int64_t head) {
    if (p_.empty()) return 0;
    const float logit = operands_.in<float>(Operand::sink)[head];
    double sum = 0;
    for (int64_t batch = 0; batch < p_.batch; ++batch) {
      const Sequence s = sequence_of(p_, operands_, batch);
      for (int64_t row = 0; row < s.seq_q; row += block_rows_q) {
        load_rows(s, batch, head, row);
        for (int64_t i = 0; i < rows_; ++i)
          if (lse_[i] != -infinity)
            sum -= std::exp(static_cast<double>(logit) - static_cast<double>(lse_[i])) * static_cast<double>(delta_[i]);
      }
    }
    return sum;
  }

 private:
  void multiply(const BlockProduct& product) const { level_.multiply_blocks(product); }

  void store(Operand operand, const attune_strides& strides, int64_t batch, int64_t row, int64_t head,
             const float* from, int64_t dim, float factor) const {
    level_.elements_of_row(from, factor, operands_.out(operand), p_.dtype, row_offset(p_, strides, batch, row, head),
                           dim);
  }

  void load(Operand operand, const attune_strides& strides, int64_t batch, int64_t row, int64_t head, int64_t dim,
            float* to) const {
    level_.floats_of_row(operands_.in(operand), p_.dtype, row_offset(p_, strides, batch, row, head), dim, to);
  }

  float number(Operand operand, const attune_strides& strides, int64_t batch, int64_t row, int64_t head) const {
    return operands_.in<float>(operand)[row_offset(p_, strides, batch, row, head)];
  }

  void load_rows(const Sequence& s, int64_t batch, int64_t head, int64_t first) {
    first_row_ = first;
    rows_ = std::min(block_rows_q, s.seq_q - first);
    for (int64_t i = 0; i < rows_; ++i) {
      const int64_t row = s.first_row_q + first + i;
      load(Operand::q, p_.q, batch, row, head, p_.dim_qk, q_ + i * width_qk_);
      load(Operand::dout, p_.dout, batch, row, head, p_.dim_v, dout_ + i * width_v_);
      load(Operand::o, p_.o, batch, row, head, p_.dim_v, one_row_);
      lse_[i] = number(Operand::lse, p_.lse, batch, row, head);
      delta_[i] = level_.dot_of_rows(dout_ + i * width_v_, one_row_, width_v_);
      if (p_.has(ATTUNE_DLSE)) delta_[i] -= number(Operand::dlse, p_.dlse, batch, row, head);
    }
  }

  // Keys from keys_ up to full lanes are 0.
  void load_keys(const Sequence& s, int64_t batch, int64_t head_kv, int64_t first) {
    first_key_ = first;
    keys_ = std::min(block_keys, s.seq_k - first);
    for (int64_t j = 0; j < keys_; ++j) {
      const int64_t row = s.first_row_k + first + j;
      load(Operand::k, p_.k, batch, row, head_kv, p_.dim_qk, k_ + j * width_qk_);
      load(Operand::v, p_.v, batch, row, head_kv, p_.dim_v, v_ + j * width_v_);
    }
    std::fill_n(k_ + keys_ * width_qk_, (padded(keys_) - keys_) * width_qk_, 0.0f);
    std::fill_n(v_ + keys_ * width_v_, (padded(keys_) - keys_) * width_v_, 0.0f);
    level_.transpose_block(k_, width_qk_, padded(keys_), width_qk_, k_columns_, block_keys);
    level_.transpose_block(v_, width_v_, padded(keys_), width_v_, v_columns_, block_keys);
  }

  // Which of the block's keys each row from `first` on sees; whether any of them sees one.
  bool find_ranges(const Sequence& s, int64_t first) {
    const auto band = device::band_of<int64_t>(visibility_of(p_), s.seq_q, s.seq_k);
    bool any = false;
    for (int64_t i = 0; i < std::min(block_rows_q, s.seq_q - first); ++i) {
      ranges_[i] = {std::clamp<int64_t>(band.begin(first + i) - first_key_, 0, keys_),
                    std::clamp<int64_t>(band.end(first + i) - first_key_, 0, keys_)};
      any = any || ranges_[i].begin < ranges_[i].end;
    }
    return any;
  }

  // Weights and gradients of the block's scores, 0 where a row does not see a key.
  void score(int64_t batch, int64_t head, bool of_products) {
    const int64_t columns = padded(keys_);
    multiply({.a = q_,
              .a_row = width_qk_,
              .a_depth = 1,
              .b = k_columns_,
              .b_pitch = block_keys,
              .to = weights_,
              .to_pitch = block_keys,
              .rows = rows_,
              .columns = columns,
              .depth = p_.dim_qk});
    multiply({.a = dout_,
              .a_row = width_v_,
              .a_depth = 1,
              .b = v_columns_,
              .b_pitch = block_keys,
              .to = gradients_,
              .to_pitch = block_keys,
              .rows = rows_,
              .columns = columns,
              .depth = p_.dim_v});
    for (int64_t i = 0; i < rows_; ++i) {
      float* const weights = weights_ + i * block_keys;
      float* const gradients = gradients_ + i * block_keys;
      const auto hide = [&](int64_t begin, int64_t end) {
        std::fill(weights + begin, weights + end, 0.0f);
        std::fill(gradients + begin, gradients + end, 0.0f);
      };
      const auto [begin, end] = ranges_[i];
      if (begin >= end || lse_[i] == -infinity) {
        hide(0, columns);
        continue;
      }
      GradientRow row{p_.scale, p_.softcap, lse_[i], delta_[i], nullptr, of_products};
      if (p_.has(ATTUNE_BIAS)) row.bias = load_bias(batch, head, first_row_ + i, begin, end);
      level_.weights_and_gradients(row, weights, gradients, columns);
      hide(0, begin);
      hide(end, columns);
      if (!p_.has(ATTUNE_MASK)) continue;
      const uint8_t* const mask = operands_.in<uint8_t>(Operand::mask);
      for (int64_t j = begin; j < end; ++j)
        if (mask[score_offset(p_.mask, batch, head, first_row_ + i, first_key_ + j)] == 0) hide(j, j + 1);
    }
  }

  const float* load_bias(int64_t batch, int64_t head, int64_t row, int64_t begin, int64_t end) {
    std::fill_n(bias_, block_keys, 0.0f);
    for (int64_t j = begin; j < end; ++j)
      bias_[j] = load_element(operands_.in(Operand::bias), p_.bias_dtype,
                              score_offset(p_.bias, batch, head, row, first_key_ + j));
    return bias_;
  }

  const Problem& p_;
  const Operands& operands_;
  const Level& level_;
  const int64_t width_qk_, width_v_;

  // The block: its first row and key, how many there are, and what was loaded of them.
  int64_t first_row_ = 0, rows_ = 0, first_key_ = 0, keys_ = 0;
  float *q_, *dout_, *k_, *v_, *k_columns_, *v_columns_, *sums_qk_, *sums_v_, *weights_, *gradients_, *bias_, *one_row_;
  float lse_[block_rows_q], delta_[block_rows_q];  // delta: dout.o, less dlse
  KeyRange ranges_[block_rows_q];
};

class BackwardPlan final : public Plan {
 public:
  BackwardPlan(const Kernel& of_kernel, const Problem& of_problem, Threads& threads)
      : Plan(of_kernel, of_problem), threads_(threads), level_(best_level()) {}

  void run(const Operands& operands, void*) const override {
    const int64_t key_blocks = blocks_of(problem.seq_k, block_keys),
                  row_blocks = blocks_of(problem.seq_q, block_rows_q);
    for_each_task(operands, problem.batch * problem.heads_kv * key_blocks, [&](Blocks& blocks, int64_t task) {
      blocks.keys(task / key_blocks / problem.heads_kv, task / key_blocks % problem.heads_kv,
                  task % key_blocks * block_keys);
    });
    for_each_task(operands, problem.batch * problem.heads_q * row_blocks, [&](Blocks& blocks, int64_t task) {
      blocks.rows(task / row_blocks / problem.heads_q, task / row_blocks % problem.heads_q,
                  task % row_blocks * block_rows_q);
    });
    if (problem.has(ATTUNE_DSINK))
      for_each_task(operands, problem.heads_q, [&](Blocks& blocks, int64_t head) {
        operands.out<float>(Operand::dsink)[head] = static_cast<float>(blocks.sink(head));
      });
    if (problem.has(ATTUNE_DBIAS)) run_bias(operands);
  }

  std::string describe() const override {
    return fmt::format("level: {}\nblocks: {} rows by {} keys\nthreads: {}\n", level_.name, block_rows_q, block_keys,
                       threads_.size());
  }

 private:
  template <typename Body>
  void for_each_task(const Operands& operands, int64_t tasks, const Body& body) const {
    threads_.parallel_for(tasks, [&](int64_t task) {
      const Threads::Scratch scratch = threads_.scratch(Blocks::scratch_bytes(problem));
      Blocks blocks(problem, operands, level_, scratch.data());
      body(blocks, task);
    });
  }

  // One dimension of dbias: its blocks are tasks, or, where the bias is broadcast, are summed by each task.
  struct Dimension {
    int64_t extent, block;
    bool summed;
    int64_t blocks() const { return blocks_of(extent, block); }
    int64_t tasks() const { return summed ? 1 : blocks(); }
    int64_t begin(int64_t task) const { return summed ? 0 : task; }
    int64_t end(int64_t task) const { return summed ? blocks() : task + 1; }
    int64_t length(int64_t task) const { return summed ? 1 : std::min(block, extent - task * block); }
  };

  void run_bias(const Operands& operands) const {
    const attune_score_strides& strides = problem.dbias;
    const Dimension batches{problem.batch, 1, strides.batch == 0}, heads{problem.heads_q, 1, strides.head == 0},
        rows{problem.seq_q, block_rows_q, strides.query == 0}, keys{problem.seq_k, block_keys, strides.key == 0};
    if (!has_elements(problem, row_of(Operand::dbias))) return;
    const int64_t tasks = batches.tasks() * heads.tasks() * rows.tasks() * keys.tasks();
    for_each_task(operands, tasks, [&](Blocks& blocks, int64_t task) {
      const int64_t key = task % keys.tasks(), row = task / keys.tasks() % rows.tasks();
      const int64_t head = task / keys.tasks() / rows.tasks() % heads.tasks();
      const int64_t batch = task / keys.tasks() / rows.tasks() / heads.tasks();
      std::vector<double> sums(static_cast<size_t>(block_rows_q * block_keys));
      for (int64_t b = batches.begin(batch); b < batches.end(batch); ++b)
        for (int64_t h = heads.begin(head); h < heads.end(head); ++h)
          for (int64_t i = rows.begin(row); i < rows.end(row); ++i)
            for (int64_t j = keys.begin(key); j < keys.end(key); ++j)
              blocks.scores(b, h, i * block_rows_q, j * block_keys, sums.data(), rows.summed ? 0 : block_keys,
                            keys.summed ? 0 : 1);
      for (int64_t i = 0; i < rows.length(row); ++i)
        for (int64_t j = 0; j < keys.length(key); ++j)
          store_element(operands.out(Operand::dbias), problem.bias_dtype,
                        score_offset(strides, batch, head, row * block_rows_q + i, key * block_keys + j),
                        static_cast<float>(sums[static_cast<size_t>(i * block_keys + j)]));
    });
  }

  Threads& threads_;
  const Level& level_;
};

class Backward final : public Kernel {
 public:
  std::string_view name() const override { return "cpu/bwd"; }
  DeviceKind device_kind() const override { return DeviceKind::cpu; }
  const Operation& operation() const override { return backward_operation; }
  std::string refusal(const Problem&, const Context&) const override { return {}; }
  double predicted_seconds(const Problem& problem, const Context&) const override {
    return 2e-6 + useful_flops(problem) / 50e9;
  }
  std::unique_ptr<const Plan> plan(const Problem& problem, Context& context) const override {
    return std::make_unique<BackwardPlan>(*this, problem, context.threads());
  }
};
const Registration<Backward> registration;

}  // namespace
}  // namespace attune::cpu
