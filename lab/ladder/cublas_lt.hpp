// cuBLAS's matrix products (cublasLt), loaded by dlopen: nothing links against it. Matrices are stored by columns, as
// there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/problem.hpp"

namespace attune::lab {

struct GemmMatrix {
  Dtype dtype = Dtype::f32;
  int64_t rows = 0, columns = 0;
  int64_t step = 0;        // elements from a column to the next
  int64_t batch_step = 0;  // elements from a matrix to the next
};

// d = op(a) b, `batch` times.
struct Gemm {
  bool transpose_a = false;
  GemmMatrix a, b, d;
  int64_t batch = 1;
};

// One of the algorithms that the library proposes for a product.
struct GemmAlgorithm {
  std::array<uint64_t, 8> data{};
  size_t workspace_bytes = 0;
};

class CublasLt {
 public:
  // Where libcublasLt.so is: ATTUNE_CUBLASLT if it is set, beside each NVRTC that is found, and where the system looks.
  // Throws ATTUNE_UNSUPPORTED, which says where it looked.
  static const CublasLt& get();
  explicit CublasLt(const std::string& path);
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;
  ~CublasLt();

  const std::string& path() const { return path_; }

  // At most `most`, the most promising first. The current context's GPU is meant.
  std::vector<GemmAlgorithm> algorithms(const Gemm& gemm, size_t workspace_bytes, int most) const;

  // On the stream. Throws ATTUNE_DEVICE_ERROR with the status.
  void run(const Gemm& gemm, const GemmAlgorithm& algorithm, const void* a, const void* b, void* d, void* workspace,
           void* stream) const;

 private:
  struct Functions;
  struct Descriptors;

  std::string path_;
  void* library_ = nullptr;
  Functions* functions_ = nullptr;
  void* handle_ = nullptr;
};

}  // namespace attune::lab
