#include "lab/report/card_time.hpp"

#include <fmt/format.h>

namespace attune::lab {

std::string card_time_text(double seconds, const std::optional<double>& price_per_hour) {
  std::string text = fmt::format("card time: {:.0f} s", seconds);
  if (price_per_hour)
    text += fmt::format(", {:.3g} at {:g} per GPU hour", seconds / 3600 * *price_per_hour, *price_per_hour);
  return text;
}

}  // namespace attune::lab
