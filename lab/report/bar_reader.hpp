// Reads the entries of lab/bars.toml, complaining of what is missing, wrong or not known by the bar's name and the key.
#pragma once

#include <toml++/toml.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/report/bars.hpp"

namespace attune::lab {

class BarReader {
 public:
  // `known`: the keys there may be.
  BarReader(std::string_view kind, const toml::table& table, const std::vector<std::string_view>& known);

  BarCoverage coverage() const;
  std::string text(std::string_view key) const;  // must be there
  std::vector<std::string> texts(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  [[noreturn]] void complain(std::string_view key, std::string_view what) const;

 private:
  std::string kind_;
  const toml::table& table_;
};

// Every [[kind]] entry of the file. Throws for other entries than [[bar]] and [[cpu_bar]], and for two of one name.
void for_each_bar(std::string_view toml, std::string_view kind, const std::function<void(const toml::table&)>& read);

}  // namespace attune::lab
