#include "lab/check/reference.hpp"

#include "lab/check/method.hpp"

namespace attune::lab {
namespace {

class CpuReference final : public ReferenceSource {
 public:
  explicit CpuReference(cpu::Threads& threads) : threads_(threads) {}

  ReferenceRows rows(const Tensors& tensors, std::span<const RowId> rows) override {
    const Problem& p = tensors.problem;
    const Operands operands = tensors.input_operands();
    const CheckMethod& method = check_method_of(p);
    ReferenceRows result;
    result.dim = p.dim_v;
    result.o.resize(rows.size() * static_cast<size_t>(p.dim_v));
    result.lse.resize(rows.size());
    threads_.parallel_for(static_cast<int64_t>(rows.size()), [&](int64_t i) {
      method.reference_row(p, operands, rows[i], result.o.data() + i * p.dim_v, &result.lse[i]);
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
