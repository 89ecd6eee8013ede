#include "lab/cmd/options.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <optional>
#include <string_view>

#include "core/error.hpp"

namespace attune::lab {
namespace {

constexpr int most_rounds = 10000;  // of the protocol

// All of the text as a T within the limits, which no NaN is.
template <typename T>
std::optional<T> number_in(std::string_view text, T least, T most) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || !(value >= least && value <= most)) return std::nullopt;
  return value;
}

[[noreturn]] void refuse(const std::string& option, const std::string& text, const std::string& allowed) {
  fail(ATTUNE_INVALID_ARGUMENT, "{} is '{}'; {} is allowed", option, text, allowed);
}

// The option's text goes to `take` as it was given.
template <typename Take>
CLI::Option* add_text(CLI::App& command, const std::string& option, const std::string& about, const char* type,
                      Take take) {
  const std::function<void(const std::string&)> function = std::move(take);
  return command.add_option_function(option, function, about)->type_name(type);
}

template <typename T>
CLI::Option* add_one(CLI::App& command, const std::string& option, T& value, T least, T most,
                     const std::string& about) {
  return add_text(command, option, about, "INT", [option, &value, least, most](const std::string& text) {
    const std::optional<T> number = number_in(text, least, most);
    if (!number) refuse(option, text, fmt::format("a whole number from {} to {}", least, most));
    value = *number;
  });
}

double read_number(const std::string& option, const std::string& text, double least, double most) {
  const auto number = number_in(text, least, std::min(most, std::numeric_limits<double>::max()));
  if (!number)
    refuse(option, text,
           std::isinf(most) ? fmt::format("a number of at least {:g}", least)
                            : fmt::format("a number from {:g} to {:g}", least, most));
  return *number;
}

}  // namespace

CLI::Option* add_whole_number(CLI::App& command, const std::string& option, int64_t& value, int64_t least, int64_t most,
                              const std::string& about) {
  return add_one(command, option, value, least, most, about);
}

CLI::Option* add_whole_number(CLI::App& command, const std::string& option, int& value, int least, int most,
                              const std::string& about) {
  return add_one(command, option, value, least, most, about);
}

CLI::Option* add_seed(CLI::App& command, uint64_t& value, const std::string& about) {
  return add_one(command, "--seed", value, uint64_t{0}, std::numeric_limits<uint64_t>::max(), about);
}

CLI::Option* add_whole_numbers(CLI::App& command, const std::string& option, std::vector<int>& values, int least,
                               int most, const std::string& about) {
  return add_text(command, option, about, "INT,...", [option, &values, least, most](const std::string& text) {
    values.clear();
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      const std::optional<int> number = number_in(std::string_view(text).substr(begin, end - begin), least, most);
      if (!number || std::ranges::find(values, *number) != values.end())
        refuse(option, text, fmt::format("a list such as 1,2 of different whole numbers from {} to {}", least, most));
      values.push_back(*number);
      begin = end + 1;
    }
  });
}

CLI::Option* add_number(CLI::App& command, const std::string& option, double& value, double least, double most,
                        const std::string& about) {
  return add_text(command, option, about, "FLOAT", [option, &value, least, most](const std::string& text) {
    value = read_number(option, text, least, most);
  });
}

CLI::Option* add_number(CLI::App& command, const std::string& option, std::optional<double>& value, double least,
                        double most, const std::string& about) {
  return add_text(command, option, about, "FLOAT", [option, &value, least, most](const std::string& text) {
    value = read_number(option, text, least, most);
  });
}

CLI::Option* add_rounds(CLI::App& command, int& value) {
  return add_whole_number(command, "--rounds", value, 1, most_rounds, "of measurement");
}

CLI::Option* add_samples(CLI::App& command, int& value, const std::string& about) {
  return add_whole_number(command, "--samples", value, 1, most_rounds, about);
}

CLI::Option* add_budget(CLI::App& command, double& value, const std::string& about) {
  return add_number(command, "--budget", value, 0, std::numeric_limits<double>::infinity(), about);
}

}  // namespace attune::lab
