#include "lab/check/backend.hpp"

namespace attune::lab {

std::vector<Backend> make_backends(cpu::Threads& threads) {
  std::vector<Backend> backends;
  backends.push_back({"cpu", make_cpu_executor(), make_cpu_reference(threads), {}, {}});
  return backends;
}

}  // namespace attune::lab
