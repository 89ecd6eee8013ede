#include "lab/progress.hpp"

#include <unistd.h>

#include <cstdlib>

#include "lab/output.hpp"

namespace attune::lab {
namespace {

constexpr int line_columns = 100;
constexpr auto shortest_pause = std::chrono::milliseconds(50);  // between two lines, so that it can be read

bool on_a_terminal() {
  const char* terminal = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

}  // namespace

ProgressLine::ProgressLine(int64_t total) : visible_(on_a_terminal()), total_(total) {}

ProgressLine::~ProgressLine() { clear(); }

void ProgressLine::step(std::string_view doing) {
  ++done_;
  say(doing);
}

void ProgressLine::say(std::string_view doing) {
  if (!visible_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - shown_ < shortest_pause) return;
  shown_ = now;
  std::string line = total_ > 0 ? fmt::format("{}/{}  {}", done_, total_, doing) : std::string(doing);
  line.resize(std::min<size_t>(line.size(), line_columns));
  remark("\r\033[K{}", line);
}

void ProgressLine::clear() {
  if (!visible_) return;
  remark("\r\033[K");
}

}  // namespace attune::lab
