// A contender that is a callable on this thread, timed by the wall clock: CPU backends, and the host side of GPU calls.
#pragma once

#include <functional>
#include <string>

#include "lab/measure/contender.hpp"

namespace attune::lab {

class CpuContender final : public Contender {
 public:
  // `make` gets a seed and allocates and fills what `call` works on; it may be empty when the call owns its data.
  CpuContender(std::string name, std::function<void()> call, std::function<void(uint64_t)> make = {},
               Clock& clock = steady_clock());

  std::string_view name() const override { return name_; }
  void prepare(double sample_seconds, uint64_t seed) override;
  void remake(uint64_t seed) override;
  Sample sample() override;
  Facts facts() const override;

 private:
  double time_batch();  // seconds for batch_ calls

  std::string name_;
  std::function<void()> call_;
  std::function<void(uint64_t)> make_;
  Clock& clock_;
  int64_t batch_ = 1;
};

}  // namespace attune::lab
