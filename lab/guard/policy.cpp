#include "lab/guard/policy.hpp"

#include <toml++/toml.h>

#include <algorithm>
#include <initializer_list>

#include "core/error.hpp"
#include "core/problem.hpp"
#include "guard_toml.hpp"

namespace attune::lab {
namespace {

void refuse_unknown(const toml::table& table, std::initializer_list<std::string_view> known, std::string_view where) {
  for (const auto& [key, value] : table)
    if (std::ranges::find(known, key.str()) == known.end())
      fail(ATTUNE_INVALID_ARGUMENT, "{}: the key '{}' is not known; {} are", where, key.str(), fmt::join(known, ", "));
}

double share_of(const toml::table& table, std::string_view key, std::string_view where) {
  const auto value = table[key].value<double>();
  if (!value || !(*value > 0 && *value < 1))
    fail(ATTUNE_INVALID_ARGUMENT, "{}: {} is {}; it must be a number between 0 and 1", where, key,
         value ? fmt::format("{}", *value) : "missing or no number");
  return *value;
}

std::string text_of(const toml::table& table, std::string_view key, std::string_view where) {
  const auto value = table[key].value<std::string>();
  if (!value || value->empty()) fail(ATTUNE_INVALID_ARGUMENT, "{}: {} is missing or no text", where, key);
  return *value;
}

// The one number of a table such as [row].
double section(const toml::table& root, std::string_view name, std::string_view key, std::string_view file) {
  const std::string where = fmt::format("{}, [{}]", file, name);
  const toml::table* table = root[name].as_table();
  if (table == nullptr) fail(ATTUNE_INVALID_ARGUMENT, "{}: is missing", where);
  refuse_unknown(*table, {key}, where);
  return share_of(*table, key, where);
}

GuardException exception_of(const toml::table& table, std::string_view file) {
  const std::string where = fmt::format("{}, [[exception]]", file);
  refuse_unknown(table, {"problem", "margin", "reason"}, where);
  return {to_string(parse_problem(text_of(table, "problem", where))), share_of(table, "margin", where),
          text_of(table, "reason", where)};
}

}  // namespace

const GuardException* GuardPolicy::exception_for(std::string_view problem) const {
  const auto found = std::ranges::find(exceptions, problem, &GuardException::problem);
  return found == exceptions.end() ? nullptr : &*found;
}

GuardPolicy read_guard_policy(std::string_view toml, std::string_view file) {
  toml::table root;
  try {
    root = toml::parse(toml);
  } catch (const toml::parse_error& error) {
    fail(ATTUNE_INVALID_ARGUMENT, "{}, line {}: {}", file, error.source().begin.line, error.description());
  }
  refuse_unknown(root, {"row", "set", "unclear", "stored", "exception"}, file);
  GuardPolicy policy;
  policy.row_margin = section(root, "row", "margin", file);
  policy.set_margin = section(root, "set", "margin", file);
  policy.unclear_share = section(root, "unclear", "share", file);
  policy.stored_margin = section(root, "stored", "margin", file);
  if (const toml::node* node = root.get("exception"); node != nullptr) {
    if (!node->is_array_of_tables())
      fail(ATTUNE_INVALID_ARGUMENT, "{}: exception is no list of tables; write [[exception]]", file);
    for (const toml::node& entry : *node->as_array()) {
      GuardException exception = exception_of(*entry.as_table(), file);
      if (policy.exception_for(exception.problem) != nullptr)
        fail(ATTUNE_INVALID_ARGUMENT, "{}: two exceptions for '{}'", file, exception.problem);
      policy.exceptions.push_back(std::move(exception));
    }
  }
  return policy;
}

GuardPolicy default_guard_policy() { return read_guard_policy(guard_toml, "guard.toml"); }

}  // namespace attune::lab
