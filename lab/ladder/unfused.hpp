// Attention of three launches: cuBLAS, softmax, cuBLAS. It is no single kernel, and so no file that `attune try` takes:
// a contender that the lab brings itself, under the name `unfused`.
#pragma once

#include <memory>
#include <string>

#include "lab/ladder/cublas_lt.hpp"
#include "lab/measure/callee.hpp"
#include "lab/try/kernel_file.hpp"

namespace attune::lab {

constexpr std::string_view unfused_rung = "07_unfused";

// What the three launches compute, as numbers; one product for each sequence, with its heads as the batch.
struct UnfusedPlan {
  Gemm scores;   // by columns: keys x rows = K^T Q
  Gemm outputs;  // dims x rows = V weights
  // Elements from a sequence to the next.
  int64_t q_step = 0, kv_step = 0, o_step = 0, score_step = 0;
  // Places in the workspace, in bytes. The log-sum-exp lies there where nobody asks for it.
  uint64_t scores_at = 0, weights_at = 0, lse_at = 0, gemm_at = 0, workspace_bytes = 0;
};
constexpr uint64_t gemm_workspace_bytes = uint64_t{32} << 20;
constexpr int most_algorithms = 16;

// Why the problem is not taken, or "".
std::string unfused_refusal(const Problem& problem);
UnfusedPlan unfused_plan(const Problem& problem);

// The middle launch: Q stands for the scores, O for the weights.
KernelFile unfused_softmax(const std::string& path);

// `path`: of 07_unfused.cu. Both products are run with every algorithm that the library proposes, and keep the
// quickest. Throws ATTUNE_UNSUPPORTED with the reason why the problem is not taken, or that there is no cuBLAS.
std::unique_ptr<Callee> unfused_callee(const std::string& path, const Problem& problem, std::string name);

}  // namespace attune::lab
