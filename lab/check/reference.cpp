#include "lab/check/reference.hpp"

#include "cpu/reference.hpp"

namespace attune::lab {
namespace {

class CpuReference final : public ReferenceSource {
 public:
  explicit CpuReference(cpu::Threads& threads) : threads_(threads) {}

  ReferenceRows rows(const Tensors& tensors, std::span<const RowId> rows) override {
    const Problem& p = tensors.problem;
    const attune_forward_args args = tensors.input_args();
    ReferenceRows result;
    result.dim = p.dim_v;
    result.o.resize(rows.size() * static_cast<size_t>(p.dim_v));
    result.lse.resize(rows.size());
    threads_.parallel_for(static_cast<int64_t>(rows.size()), [&](int64_t i) {
      const RowId& id = rows[static_cast<size_t>(i)];
      cpu::reference_row(p, args, id.batch, id.head, id.row, result.o.data() + i * p.dim_v, &result.lse[i], nullptr);
    });
    return result;
  }

 private:
  cpu::Threads& threads_;
};

}  // namespace

std::unique_ptr<ReferenceSource> make_cpu_reference(cpu::Threads& threads) {
  return std::make_unique<CpuReference>(threads);
}

}  // namespace attune::lab
