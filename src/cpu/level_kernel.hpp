// A kernel out of an instruction-set level.
#pragma once

#include <memory>
#include <string>

#include "cpu/level/level.hpp"
#include "dispatch/kernel.hpp"

namespace attune::cpu {

class LevelKernel : public Kernel {
 public:
  LevelKernel(const Level& level, double speed_over_portable)
      : level_(level), name_(std::string("cpu/") + level.name), speed_(speed_over_portable) {}

  std::string_view name() const override { return name_; }
  DeviceKind device_kind() const override { return DeviceKind::cpu; }
  bool selectable() const override;
  std::string refusal(const Problem& problem, const Context& context) const override;
  double predicted_seconds(const Problem& problem, const Context& context) const override;
  std::unique_ptr<const Plan> plan(const Problem& problem, Context& context) const override;

 private:
  const Level& level_;
  std::string name_;
  double speed_;
};

}  // namespace attune::cpu
