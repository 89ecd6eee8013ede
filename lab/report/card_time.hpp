// What a run cost: the seconds that it held a GPU, and the money where the price of an hour is known.
#pragma once

#include <optional>
#include <string>

namespace attune::lab {

// "card time: 83 s, 0.0692 at 3 per GPU hour", without a newline.
std::string card_time_text(double seconds, const std::optional<double>& price_per_hour);

}  // namespace attune::lab
