#include "lab/check/backend.hpp"

#include <limits>

#include "gpu/runtime.hpp"
#include "lab/check/cuda_backend.hpp"

namespace attune::lab {
namespace {

Backend make_cuda_backend() {
  // The GPU is done in a blink, but inputs are made and outputs compared by the CPU: the whole grid would take minutes.
  constexpr double a_few_heads = 0x1p36, all = std::numeric_limits<double>::infinity();
  return {"cuda", make_cuda_executor(), make_cuda_reference(), cuda_rows, {a_few_heads, all, 0x1p28}};
}

}  // namespace

std::vector<Backend> make_backends(cpu::Threads& threads) {
  std::vector<Backend> backends;
  if (gpu::Runtime().device_count() > 0) backends.push_back(make_cuda_backend());
  backends.push_back({"cpu", make_cpu_executor(), make_cpu_reference(threads), {}, {}});
  return backends;
}

}  // namespace attune::lab
