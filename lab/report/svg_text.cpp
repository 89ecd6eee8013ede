#include "lab/report/svg_text.hpp"

#include <fmt/format.h>

namespace attune::lab {

std::string svg_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

std::string svg_text(double x, double y, std::string_view anchor, std::string_view text, std::string_view style) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}{}>{}</text>\n", x, y, anchor,
                     style.empty() ? "" : " ", style, svg_escaped(text));
}

}  // namespace attune::lab
