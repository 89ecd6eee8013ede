// What problems run on an H200 with the code of today, for records that speak of it.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "lab/evidence/run_stamps.hpp"

namespace attune::lab {

inline RunStamps stamps_of_today(const std::vector<std::string>& problems) {
  attune_options options{};
  options.struct_size = sizeof options;
  options.threads = 1;
  const auto& devices = gpu::typical_devices();
  const auto hopper = std::ranges::find_if(devices, [](const auto& device) { return device.arch() == "sm_90a"; });
  Context context(options, std::make_unique<gpu::Runtime>(devices));
  return stamps_of_problems(problems, "", context, static_cast<int>(std::distance(devices.begin(), hopper)));
}

}  // namespace attune::lab
