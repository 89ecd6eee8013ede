#include "lab/ladder/cublas_lt.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "core/error.hpp"
#include "jit/nvrtc.hpp"
#include "jit/paths.hpp"

namespace attune::lab {
namespace {

// Of cublas_api.h, library_types.h and cublasLt.h.
constexpr int compute_32f = 68, type_32f = 0, type_16f = 2, type_16bf = 14, operation_transpose = 1;
constexpr int desc_transpose_a = 3, layout_batch_count = 5, layout_batch_step = 6, preference_workspace_bytes = 1;

struct HeuristicResult {
  uint64_t algorithm[8];
  size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
};
static_assert(sizeof(HeuristicResult) == 96);

int type_of(Dtype dtype) {
  if (dtype == Dtype::f32) return type_32f;
  return dtype == Dtype::f16 ? type_16f : type_16bf;
}

void check(int status, const char* what) {
  if (status != 0) fail(ATTUNE_DEVICE_ERROR, "cublasLt: {} returned status {}", what, status);
}

std::vector<std::string> places_of_cublas_lt() {
  if (const char* named = std::getenv("ATTUNE_CUBLASLT"); named != nullptr) return {named};
  std::vector<std::string> places;
  for (const std::string& nvrtc : jit::search_nvrtc(jit::environment).found) {
    const std::filesystem::path folder = std::filesystem::path(nvrtc).parent_path();
    for (const char* beside : {"libcublasLt.so.13", "libcublasLt.so.12", "../../cublas/lib/libcublasLt.so.12"})
      if (std::filesystem::exists(folder / beside)) places.push_back((folder / beside).string());
  }
  places.insert(places.end(), {"libcublasLt.so.13", "libcublasLt.so.12", "/usr/local/cuda/lib64/libcublasLt.so"});
  return places;
}

}  // namespace

struct CublasLt::Functions {
  int (*create)(void** handle);
  int (*destroy)(void* handle);
  int (*desc_create)(void** desc, int compute, int scale);
  int (*desc_set)(void* desc, int attribute, const void* value, size_t bytes);
  int (*desc_destroy)(void* desc);
  int (*layout_create)(void** layout, int type, uint64_t rows, uint64_t columns, int64_t step);
  int (*layout_set)(void* layout, int attribute, const void* value, size_t bytes);
  int (*layout_destroy)(void* layout);
  int (*preference_create)(void** preference);
  int (*preference_set)(void* preference, int attribute, const void* value, size_t bytes);
  int (*preference_destroy)(void* preference);
  int (*heuristic)(void* handle, void* desc, void* a, void* b, void* c, void* d, void* preference, int most,
                   void* results, int* count);
  int (*matmul)(void* handle, void* desc, const void* alpha, const void* a, void* a_layout, const void* b,
                void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                const void* algorithm, void* workspace, size_t workspace_bytes, void* stream);
};

// What describes a product to the library, gone with the object.
struct CublasLt::Descriptors {
  Descriptors(const Functions& functions, const Gemm& gemm) : lt(functions) {
    check(lt.desc_create(&desc, compute_32f, type_32f), "cublasLtMatmulDescCreate");
    if (gemm.transpose_a)
      check(lt.desc_set(desc, desc_transpose_a, &operation_transpose, sizeof operation_transpose),
            "cublasLtMatmulDescSetAttribute");
    a = layout(gemm.a, gemm.batch);
    b = layout(gemm.b, gemm.batch);
    d = layout(gemm.d, gemm.batch);
  }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;
  ~Descriptors() {
    for (void* each : {a, b, d})
      if (each != nullptr) lt.layout_destroy(each);
    lt.desc_destroy(desc);
  }

  void* layout(const GemmMatrix& matrix, int64_t batch) const {
    void* made = nullptr;
    check(lt.layout_create(&made, type_of(matrix.dtype), static_cast<uint64_t>(matrix.rows),
                           static_cast<uint64_t>(matrix.columns), matrix.step),
          "cublasLtMatrixLayoutCreate");
    const auto count = static_cast<int32_t>(batch);
    check(lt.layout_set(made, layout_batch_count, &count, sizeof count), "cublasLtMatrixLayoutSetAttribute");
    check(lt.layout_set(made, layout_batch_step, &matrix.batch_step, sizeof matrix.batch_step),
          "cublasLtMatrixLayoutSetAttribute");
    return made;
  }

  const Functions& lt;
  void *desc = nullptr, *a = nullptr, *b = nullptr, *d = nullptr;
};

CublasLt::CublasLt(const std::string& path) : path_(path), library_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (library_ == nullptr) fail(ATTUNE_UNSUPPORTED, "{}: {}", path, dlerror());
  auto functions = std::make_unique<Functions>();
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library_, name));
    if (function == nullptr) fail(ATTUNE_UNSUPPORTED, "{}: has no {}", path, name);
  };
  find(functions->create, "cublasLtCreate");
  find(functions->destroy, "cublasLtDestroy");
  find(functions->desc_create, "cublasLtMatmulDescCreate");
  find(functions->desc_set, "cublasLtMatmulDescSetAttribute");
  find(functions->desc_destroy, "cublasLtMatmulDescDestroy");
  find(functions->layout_create, "cublasLtMatrixLayoutCreate");
  find(functions->layout_set, "cublasLtMatrixLayoutSetAttribute");
  find(functions->layout_destroy, "cublasLtMatrixLayoutDestroy");
  find(functions->preference_create, "cublasLtMatmulPreferenceCreate");
  find(functions->preference_set, "cublasLtMatmulPreferenceSetAttribute");
  find(functions->preference_destroy, "cublasLtMatmulPreferenceDestroy");
  find(functions->heuristic, "cublasLtMatmulAlgoGetHeuristic");
  find(functions->matmul, "cublasLtMatmul");
  check(functions->create(&handle_), "cublasLtCreate");
  functions_ = functions.release();
}

// The library stays loaded: what it has registered with the driver is not taken back.
CublasLt::~CublasLt() {
  functions_->destroy(handle_);
  delete functions_;
}

const CublasLt& CublasLt::get() {
  static const CublasLt library = [] {
    std::string path;
    for (const std::string& place : places_of_cublas_lt())
      if (void* found = path.empty() ? dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr; found != nullptr)
        path = place;
    if (path.empty())
      fail(ATTUNE_UNSUPPORTED, "libcublasLt.so is in none of {}; ATTUNE_CUBLASLT may name the file",
           fmt::join(places_of_cublas_lt(), ", "));
    return CublasLt(path);
  }();
  return library;
}

std::vector<GemmAlgorithm> CublasLt::algorithms(const Gemm& gemm, size_t workspace_bytes, int most) const {
  const Descriptors of(*functions_, gemm);
  void* preference = nullptr;
  check(functions_->preference_create(&preference), "cublasLtMatmulPreferenceCreate");
  std::vector<HeuristicResult> results(static_cast<size_t>(most));
  int count = 0;
  int status =
      functions_->preference_set(preference, preference_workspace_bytes, &workspace_bytes, sizeof workspace_bytes);
  if (status == 0)
    status = functions_->heuristic(handle_, of.desc, of.a, of.b, of.d, of.d, preference, most, results.data(), &count);
  functions_->preference_destroy(preference);
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  std::vector<GemmAlgorithm> found;
  for (int i = 0; i < count; ++i) {
    const HeuristicResult& result = results[static_cast<size_t>(i)];
    if (result.status != 0) continue;
    GemmAlgorithm& made = found.emplace_back();
    std::copy(std::begin(result.algorithm), std::end(result.algorithm), made.data.begin());
    made.workspace_bytes = result.workspace_bytes;
  }
  return found;
}

void CublasLt::run(const Gemm& gemm, const GemmAlgorithm& algorithm, const void* a, const void* b, void* d,
                   void* workspace, void* stream) const {
  const Descriptors of(*functions_, gemm);
  const float alpha = 1, beta = 0;
  check(functions_->matmul(handle_, of.desc, &alpha, a, of.a, b, of.b, &beta, d, of.d, d, of.d, algorithm.data.data(),
                           workspace, algorithm.workspace_bytes, stream),
        "cublasLtMatmul");
}

}  // namespace attune::lab
