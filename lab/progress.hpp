// A line on standard error that says how far a long command is. Silent where standard error is not a terminal.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace attune::lab {

class ProgressLine {
 public:
  explicit ProgressLine(int64_t total = 0);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void step(std::string_view doing);  // one more is done; `doing` is what comes next
  void say(std::string_view doing);
  void clear();  // so that other output can be written

 private:
  bool visible_;
  int64_t total_, done_ = 0;
  std::chrono::steady_clock::time_point shown_;
};

}  // namespace attune::lab
