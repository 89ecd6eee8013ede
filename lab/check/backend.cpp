#include "lab/check/backend.hpp"

#include "gpu/runtime.hpp"
#include "lab/check/cuda_backend.hpp"

namespace attune::lab {

std::vector<Backend> make_backends(cpu::Threads& threads) {
  std::vector<Backend> backends;
  if (gpu::Runtime().device_count() > 0)
    backends.push_back({"cuda", make_cuda_executor(), make_cuda_reference(), {}, {}});
  backends.push_back({"cpu", make_cpu_executor(), make_cpu_reference(threads), {}, {}});
  return backends;
}

}  // namespace attune::lab
