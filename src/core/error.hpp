// The one error path: everything below the C API throws Error; the API turns it into a status and a text.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

#include "attune/attune.h"

namespace attune {

class Error : public std::runtime_error {
 public:
  Error(attune_status code, const std::string& text) : std::runtime_error(text), status(code) {}
  attune_status status;
};

template <typename... Args>
[[noreturn]] void fail(attune_status status, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(status, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace attune
