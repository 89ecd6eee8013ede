// The float64 reference on the GPU: every row, not rounded. For the lab; judged itself by the reference on the CPU.
#pragma once

#include <memory>

#include "gpu/kernel.hpp"
#include "gpu/runtime.hpp"

namespace attune::any {

class DeviceReference {
 public:
  DeviceReference(const Problem& problem, gpu::Runtime& runtime);

  // Rows of `o` and `lse`: total_q for packed sequences, else batch * seq_q.
  int64_t rows() const { return rows_; }

  // Device pointers: `o` receives (heads_q, rows, dim_v), `lse` (heads_q, rows); rows that belong to no sequence are
  // not written. o and lse of the operands are not touched. Does not synchronise.
  void run(const Operands& operands, double* o, double* lse, void* stream) const;

 private:
  gpu::Device& device_;
  gpu::Recipe recipe_;
  gpu::Launch launch_;
  int64_t rows_;
};

}  // namespace attune::any
