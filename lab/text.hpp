// Tables and numbers for people.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attune::lab {

// Columns as wide as their longest cell. Numbers read best flush right: name those columns `right`.
class Table {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::left;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<std::string> cells);
  std::string text() const;      // one line per row, each ending in a newline
  std::string markdown() const;  // the same as a table of Markdown

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// 3 significant digits and the unit that suits: 12.3 us, 4.56 ms, 1.20 s.
std::string duration_text(double seconds);
// The interval in the unit of the value: 4.56 ms [4.50, 4.61].
std::string duration_text(double seconds, double low, double high);

// "1 check", "2 checks".
std::string counted(int64_t count, std::string_view noun);

}  // namespace attune::lab
