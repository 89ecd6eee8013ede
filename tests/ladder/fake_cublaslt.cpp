// Stands in for libcublasLt.so: the functions that lab/ladder/cublas_lt.cpp asks for, with products computed on the CPU
// from what their descriptors say. It proposes three algorithms, of which it calls the second one unusable.
#include <cstdlib>
#include <cstring>

#include "core/convert.hpp"

using attune::Dtype;

namespace {

struct Desc {
  int32_t transpose_a = 0;
};
struct Layout {
  int type = 0;
  uint64_t rows = 0, columns = 0;
  int64_t step = 0, batch_step = 0;
  int32_t batch = 1;
};
struct Result {
  uint64_t algorithm[8];
  size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
};

Dtype dtype_of(int type) {
  if (type == 0) return Dtype::f32;
  return type == 2 ? Dtype::f16 : Dtype::bf16;
}

}  // namespace

extern "C" {

int cublasLtCreate(void** handle) {
  *handle = new int(0);
  return 0;
}
int cublasLtDestroy(void* handle) {
  delete static_cast<int*>(handle);
  return 0;
}
int cublasLtMatmulDescCreate(void** desc, int compute, int scale) {
  if (compute != 68 || scale != 0) return 7;
  *desc = new Desc;
  return 0;
}
int cublasLtMatmulDescSetAttribute(void* desc, int attribute, const void* value, size_t bytes) {
  if (attribute != 3 || bytes != 4) return 7;
  std::memcpy(&static_cast<Desc*>(desc)->transpose_a, value, bytes);
  return 0;
}
int cublasLtMatmulDescDestroy(void* desc) {
  delete static_cast<Desc*>(desc);
  return 0;
}
int cublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t columns, int64_t step) {
  if (step < static_cast<int64_t>(rows)) return 7;
  *layout = new Layout{type, rows, columns, step};
  return 0;
}
int cublasLtMatrixLayoutSetAttribute(void* layout, int attribute, const void* value, size_t bytes) {
  auto* const of = static_cast<Layout*>(layout);
  if (attribute == 5 && bytes == 4)
    std::memcpy(&of->batch, value, bytes);
  else if (attribute == 6 && bytes == 8)
    std::memcpy(&of->batch_step, value, bytes);
  else
    return 7;
  return 0;
}
int cublasLtMatrixLayoutDestroy(void* layout) {
  delete static_cast<Layout*>(layout);
  return 0;
}
int cublasLtMatmulPreferenceCreate(void** preference) {
  *preference = new size_t(0);
  return 0;
}
int cublasLtMatmulPreferenceSetAttribute(void* preference, int attribute, const void* value, size_t bytes) {
  if (attribute != 1 || bytes != sizeof(size_t)) return 7;
  std::memcpy(preference, value, bytes);
  return 0;
}
int cublasLtMatmulPreferenceDestroy(void* preference) {
  delete static_cast<size_t*>(preference);
  return 0;
}
int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void* preference, int most, void* results,
                                   int* count) {
  if (most < 3) return 7;
  for (int i = 0; i < 3; ++i) {
    Result result{};
    result.algorithm[0] = static_cast<uint64_t>(i) + 1;
    result.workspace_bytes = *static_cast<size_t*>(preference) / 2;
    result.status = i == 1 ? 15 : 0;
    std::memcpy(static_cast<Result*>(results) + i, &result, sizeof result);
  }
  *count = 3;
  return 0;
}
int cublasLtMatmul(void*, void* desc, const void* alpha, const void* a, void* a_layout, const void* b, void* b_layout,
                   const void* beta, const void*, void*, void* d, void* d_layout, const void* algorithm, void*, size_t,
                   void*) {
  const auto& at = *static_cast<Layout*>(a_layout);
  const auto& bt = *static_cast<Layout*>(b_layout);
  const auto& dt = *static_cast<Layout*>(d_layout);
  const bool transpose = static_cast<Desc*>(desc)->transpose_a == 1;
  uint64_t chosen = 0;
  std::memcpy(&chosen, algorithm, sizeof chosen);
  if (chosen != 1 && chosen != 3) return 7;
  if (*static_cast<const float*>(alpha) != 1 || *static_cast<const float*>(beta) != 0) return 7;
  const uint64_t depth = transpose ? at.rows : at.columns;
  if ((transpose ? at.columns : at.rows) != dt.rows || depth != bt.rows || bt.columns != dt.columns) return 7;
  if (at.batch != dt.batch || bt.batch != dt.batch) return 7;
  const auto place = [](const Layout& of, int64_t batch, uint64_t row, uint64_t column) {
    return batch * of.batch_step + static_cast<int64_t>(column) * of.step + static_cast<int64_t>(row);
  };
  for (int64_t batch = 0; batch < dt.batch; ++batch)
    for (uint64_t i = 0; i < dt.rows; ++i)
      for (uint64_t j = 0; j < dt.columns; ++j) {
        float sum = 0;
        for (uint64_t k = 0; k < depth; ++k)
          sum +=
              attune::load_element(a, dtype_of(at.type), transpose ? place(at, batch, k, i) : place(at, batch, i, k)) *
              attune::load_element(b, dtype_of(bt.type), place(bt, batch, k, j));
        attune::store_element(d, dtype_of(dt.type), place(dt, batch, i, j), sum);
      }
  return 0;
}

}  // extern "C"
