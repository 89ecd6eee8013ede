#include "lab/measure/inputs.hpp"

#include "lab/check/inputs.hpp"

namespace attune::lab {

std::shared_ptr<const Tensors> InputSource::get(uint64_t seed) {
  if (latest_ == nullptr || seed != seed_) {
    latest_ = std::make_shared<const Tensors>(make_inputs(problem_, InputKind::normal, seed, Storage::dense, threads_));
    seed_ = seed;
  }
  return latest_;
}

}  // namespace attune::lab
