// Threads for the CPU kernels: the library's own pool, or whatever the host lends through parallel_for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "attune/attune.h"

namespace attune::cpu {

class Threads {
 public:
  explicit Threads(const attune_options& options);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  // body(i) once for each i of 0..count-1, in any order; returns when all are done. The first exception thrown
  // by a body is rethrown here.
  void parallel_for(int64_t count, const std::function<void(int64_t)>& body);

  int size() const;  // how many bodies may run at once

 private:
  class Pool;
  attune_parallel_for lent_ = nullptr;
  void* lent_user_ = nullptr;
  std::unique_ptr<Pool> pool_;
};

}  // namespace attune::cpu
