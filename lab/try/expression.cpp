#include "lab/try/expression.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "core/error.hpp"

namespace attune::lab {
namespace {

struct Operator {
  std::string_view text;
  int rank;  // binds more tightly the higher it is
};
// Longer ones first, so that "<=" is not read as "<".
constexpr std::array<Operator, 13> operators{{{"||", 1},
                                              {"&&", 2},
                                              {"==", 3},
                                              {"!=", 3},
                                              {"<=", 4},
                                              {">=", 4},
                                              {"<", 4},
                                              {">", 4},
                                              {"+", 5},
                                              {"-", 5},
                                              {"*", 6},
                                              {"/", 6},
                                              {"%", 6}}};
constexpr int deepest = 64;

class Parser {
 public:
  Parser(std::string_view text, const Variables& variables) : text_(text), variables_(variables) {}

  int64_t whole() {
    const int64_t value = binary(1);
    if (!at_end()) complain(fmt::format("'{}' is not expected", text_.substr(at_)));
    return value;
  }

 private:
  [[noreturn]] void complain(const std::string& what) const {
    fail(ATTUNE_INVALID_ARGUMENT, "'{}', at character {}: {}", text_, at_ + 1, what);
  }

  void skip_blanks() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool at_end() {
    skip_blanks();
    return at_ == text_.size();
  }
  bool take(std::string_view token) {
    skip_blanks();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  void need(std::string_view token) {
    if (!take(token)) complain(fmt::format("'{}' is expected", token));
  }

  int64_t binary(int least_rank) {
    int64_t left = unary();
    for (;;) {
      skip_blanks();
      const auto found = std::ranges::find_if(
          operators, [&](const Operator& each) { return text_.substr(at_).starts_with(each.text); });
      if (found == operators.end() || found->rank < least_rank) break;
      at_ += found->text.size();
      left = apply(found->text, left, binary(found->rank + 1));
    }
    return left;
  }

  int64_t unary() {
    if (++depth_ > deepest) complain("there are too many brackets and signs");
    const int64_t value = operand();
    --depth_;
    return value;
  }

  int64_t operand() {
    if (take("!")) return unary() == 0 ? 1 : 0;
    if (take("-")) return apply("-", 0, unary());
    if (take("(")) {
      const int64_t value = binary(1);
      need(")");
      return value;
    }
    if (at_end()) complain("a number, a name or a bracket is missing");
    return std::isdigit(static_cast<unsigned char>(text_[at_])) != 0 ? number() : name();
  }

  int64_t number() {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) complain("the number does not fit into 64 bits");
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  int64_t name() {
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_'))
      ++at_;
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (word.empty()) complain(fmt::format("'{}' is not expected", text_.substr(at_, 1)));
    for (const std::string_view function : {"min", "max", "ceil_div"})
      if (word == function && take("(")) {
        const int64_t a = binary(1);
        need(",");
        const int64_t b = binary(1);
        need(")");
        if (word == "min") return std::min(a, b);
        if (word == "max") return std::max(a, b);
        return apply("/", apply("+", a, apply("-", b, 1)), b);
      }
    const auto found = variables_.find(word);
    if (found == variables_.end()) {
      at_ = begin;
      std::string known;
      for (const auto& [variable, value] : variables_) known += (known.empty() ? "" : ", ") + variable;
      complain(fmt::format("there is no '{}'; {}, min, max and ceil_div are known", word, known));
    }
    return found->second;
  }

  template <typename Overflows>
  int64_t checked(Overflows overflows) const {
    int64_t result = 0;
    if (overflows(&result)) complain("the value does not fit into 64 bits");
    return result;
  }

  int64_t apply(std::string_view sign, int64_t a, int64_t b) const {
    if (sign == "+") return checked([=](int64_t* r) { return __builtin_add_overflow(a, b, r); });
    if (sign == "-") return checked([=](int64_t* r) { return __builtin_sub_overflow(a, b, r); });
    if (sign == "*") return checked([=](int64_t* r) { return __builtin_mul_overflow(a, b, r); });
    if (sign == "/" || sign == "%") {
      if (b == 0) complain("a division by 0");
      if (b == -1) return sign == "/" ? apply("-", 0, a) : 0;
      return sign == "/" ? a / b : a % b;
    }
    if (sign == "||") return (a != 0 || b != 0) ? 1 : 0;
    if (sign == "&&") return (a != 0 && b != 0) ? 1 : 0;
    if (sign == "==") return a == b ? 1 : 0;
    if (sign == "!=") return a != b ? 1 : 0;
    if (sign == "<=") return a <= b ? 1 : 0;
    if (sign == ">=") return a >= b ? 1 : 0;
    return (sign == "<" ? a < b : a > b) ? 1 : 0;
  }

  std::string_view text_;
  const Variables& variables_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

int64_t evaluate(std::string_view expression, const Variables& variables) {
  return Parser(expression, variables).whole();
}

}  // namespace attune::lab
