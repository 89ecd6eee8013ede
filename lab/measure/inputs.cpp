#include "lab/measure/inputs.hpp"

#include "lab/check/inputs.hpp"

namespace attune::lab {

InputSource::InputSource(const Problem& problem, cpu::Threads& threads) : problem_(problem), threads_(threads) {
  if (problem.device_kind != DeviceKind::cpu || !problem.packed()) return;
  const auto filled = [&](int64_t total, int64_t longest) {
    return total == problem.batch * longest ? (total + longest) / 2 : total;
  };
  problem_.total_q = filled(problem.total_q, problem.seq_q);
  problem_.total_k = filled(problem.total_k, problem.seq_k);
}

std::shared_ptr<const Tensors> InputSource::get(uint64_t seed) {
  if (latest_ == nullptr || seed != seed_) {
    latest_ = std::make_shared<const Tensors>(make_inputs(problem_, InputKind::timed, seed, Storage::dense, threads_));
    seed_ = seed;
  }
  return latest_;
}

}  // namespace attune::lab
