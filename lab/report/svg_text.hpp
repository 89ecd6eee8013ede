// Text in charts.
#pragma once

#include <string>
#include <string_view>

namespace attune::lab {

std::string svg_escaped(std::string_view text);

// `anchor`: start, middle or end, where x is; `style`: more attributes.
std::string svg_text(double x, double y, std::string_view anchor, std::string_view text, std::string_view style = "");

}  // namespace attune::lab
