// How the gradients of attention are checked.
//
// A backward reads o and lse. In the inputs they are the float64 ones, rounded to what they are stored in; where that
// would take too long, what the library's own forward pass gives on the CPU. The truth is that of the function and does
// not depend on them. Ideal reads them as a kernel does, since no kernel can be better than what it is given.
#include <fmt/format.h>

#include <memory>

#include "cpu/reference_backward.hpp"
#include "dispatch/context.hpp"
#include "lab/check/dtype.hpp"
#include "lab/check/inputs.hpp"
#include "lab/check/method.hpp"

namespace attune::lab {
namespace {

// Work of the forward pass up to which o and lse are made in float64.
constexpr double most_flops_in_double = 0x1p32;

// Rows that are not in use stay poison.
void fill_exact_results(Tensors& t, cpu::Threads& threads) {
  const Problem& p = t.problem;
  const Operands inputs = t.input_operands();
  threads.parallel_for(p.batch * p.heads_q, [&](int64_t index) {
    const int64_t b = index / p.heads_q, head = index % p.heads_q;
    const cpu::ReferenceHead truth(p, inputs, b, head);
    const Sequence& s = truth.sequence();
    for (int64_t row = 0; row < s.seq_q; ++row) {
      const int64_t o_at = row_offset(p, p.o, b, s.first_row_q, row, head);
      for (int64_t c = 0; c < p.dim_v; ++c)
        store_element(t[Operand::o].data(), p.dtype, o_at + c, static_cast<float>(round_to(p.dtype, truth.o(row)[c])));
      t[Operand::lse].as<float>()[row_offset(p, p.lse, b, s.first_row_q, row, head)] =
          static_cast<float>(truth.lse(row));
    }
  });
}

// Runs the forward pass on the tensors of the backward.
void fill_results_of_kernel(Tensors& t) {
  const Problem& p = t.problem;
  attune_forward_desc desc{};
  {
    Problem forward = p;
    forward.operation = &forward_operation;
    forward.device_kind = DeviceKind::cpu;
    forward.device_index = 0;
    forward.features &= ~(ATTUNE_DLSE | ATTUNE_DSINK | ATTUNE_DBIAS | ATTUNE_ANY_ORDER);
    desc = desc_from(forward);
  }
  const Problem forward = problem_from(desc);
  Context context{attune_options{}};
  const uint64_t bytes = context.plan_for(forward)->workspace_bytes();
  constexpr size_t alignment = 256;
  std::vector<std::byte> workspace(bytes + alignment);
  const auto address = reinterpret_cast<uintptr_t>(workspace.data());
  Operands operands = t.operands();
  operands.workspace = workspace.data() + (alignment - address % alignment) % alignment;
  operands.workspace_bytes = bytes;
  context.run(forward, operands, nullptr);
}

void fill_backward(Tensors& t, InputKind kind, uint64_t seed, cpu::Threads& threads) {
  fill_attention(t, kind, seed, threads);
  fill_arriving_gradients(t, kind, seed, threads);
  fill_results(t, threads);
}

// Everything that the rows of the outputs are made of: the heads, each once.
class Heads {
 public:
  Heads(const Tensors& tensors, cpu::Threads& threads) : p_(tensors.problem), inputs_(tensors.input_operands()) {
    heads_.resize(static_cast<size_t>(p_.batch * p_.heads_q));
    threads.parallel_for(p_.batch * p_.heads_q, [&](int64_t i) {
      heads_[static_cast<size_t>(i)] =
          std::make_unique<cpu::ReferenceHead>(p_, inputs_, i / p_.heads_q, i % p_.heads_q);
    });
  }

  // One row of an output; false if nothing reaches it.
  bool row(Operand output, const RowId& id, double* values) const {
    switch (output) {
      case Operand::dq:
        return dq(id, values);
      case Operand::dk:
      case Operand::dv:
        return of_key(output, id, values);
      case Operand::dsink:
        for (int64_t b = 0; b < p_.batch; ++b) values[0] += head(b, id.head).dsink();
        return p_.batch > 0;
      default:
        return dbias(id, values);
    }
  }

 private:
  const cpu::ReferenceHead& head(int64_t batch, int64_t head) const {
    return *heads_[static_cast<size_t>(batch * p_.heads_q + head)];
  }

  bool dq(const RowId& id, double* values) const {
    const cpu::ReferenceHead& of = head(id.batch, id.head);
    of.add_dq(id.row, values);
    bool any = false;
    if (id.row < of.sequence().seq_q)
      for (int64_t j = 0; j < of.sequence().seq_k; ++j) any = any || of.sees(id.row, j);
    return any;
  }

  bool of_key(Operand output, const RowId& id, double* values) const {
    bool any = false;
    for (int64_t h = id.head * p_.group(); h < (id.head + 1) * p_.group(); ++h) {
      const cpu::ReferenceHead& of = head(id.batch, h);
      if (id.row >= of.sequence().seq_k) continue;
      output == Operand::dk ? of.add_dk(id.row, values) : of.add_dv(id.row, values);
      for (int64_t i = 0; i < of.sequence().seq_q; ++i) any = any || of.sees(i, id.row);
    }
    return any;
  }

  bool dbias(const RowId& id, double* values) const {
    const attune_score_strides& s = p_.dbias;
    const auto each = [](int64_t stride, int64_t place, int64_t extent, auto&& body) {
      if (stride != 0) return body(place);
      for (int64_t i = 0; i < extent; ++i) body(i);
    };
    bool any = false;
    each(s.batch, id.batch, p_.batch, [&](int64_t b) {
      each(s.head, id.head, p_.heads_q, [&](int64_t h) {
        const cpu::ReferenceHead& of = head(b, h);
        each(s.query, id.row, of.sequence().seq_q, [&](int64_t i) {
          if (i >= of.sequence().seq_q) return;
          for (int64_t j = 0; j < of.sequence().seq_k; ++j) {
            values[s.key == 0 ? 0 : j] += of.score(i, j).gradient;
            any = any || of.sees(i, j);
          }
        });
      });
    });
    return any;
  }

  const Problem& p_;
  const Operands inputs_;
  std::vector<std::unique_ptr<cpu::ReferenceHead>> heads_;
};

std::vector<ReferenceRows> reference_gradients(const Tensors& tensors, std::span<const RowChoice> outputs,
                                               cpu::Threads& threads) {
  const Heads heads(tensors, threads);
  std::vector<ReferenceRows> all;
  for (const RowChoice& choice : outputs) {
    ReferenceRows rows;
    rows.dim = row_space(tensors.problem, choice.output).dim;
    rows.o.resize(choice.rows.size() * static_cast<size_t>(rows.dim));
    std::vector<char> reached(choice.rows.size());  // threads cannot share a vector of bits
    threads.parallel_for(static_cast<int64_t>(choice.rows.size()), [&](int64_t i) {
      const auto row = static_cast<size_t>(i);
      reached[row] = heads.row(choice.output, choice.rows[row], rows.o.data() + i * rows.dim) ? 1 : 0;
    });
    for (const char one : reached) rows.unseen.push_back(one == 0);
    all.push_back(std::move(rows));
  }
  return all;
}

constexpr std::span oracles_of_gradients = all_oracles;

constexpr const char* backward_shapes[] = {"b2 h4/2 q200 k333", "b1 h2/1 q129 k64", "b3 h2/2 q65 k150"};
constexpr const char* backward_features[] = {"",     "causal-br",       "causal-tl", "w30,10", "cap5",     "sink dsink",
                                             "dlse", "bias=1hqk dbias", "mask=b1qk", "var",    "scale-0.3"};

std::vector<std::string> backwards_like(const Problem& like) {
  std::vector<std::string> problems;
  for (const char* shape : backward_shapes)
    for (const char* feature : backward_features)
      problems.push_back(to_string(parse_problem(
          fmt::format("bwd {} d{}/{} {} {}", shape, like.dim_qk, like.dim_v, name_of(like.dtype), feature))));
  return problems;
}

constexpr CheckMethod backward{.operation = &backward_operation,
                               .fill = fill_backward,
                               .reference_of = reference_gradients,
                               .ideal_of = ideal_gradients,
                               .oracles = oracles_of_gradients,
                               .problems_like = backwards_like};
const CheckMethodRegistration backward_registration(backward);

}  // namespace

void fill_results(Tensors& t, cpu::Threads& threads) {
  if (attention_flops(t.problem) <= most_flops_in_double)
    fill_exact_results(t, threads);
  else
    fill_results_of_kernel(t);
}

}  // namespace attune::lab
