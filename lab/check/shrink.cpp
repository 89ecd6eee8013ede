#include "lab/check/shrink.hpp"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "core/error.hpp"

namespace attune::lab {
namespace {

using Words = std::vector<std::string>;

Words words_of(const std::string& text) {
  std::istringstream stream(text);
  Words words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::string text_of(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

bool parses(const std::string& text) {
  try {
    parse_problem(text);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Words such as b4, h8/2, q512, k512, d64/32: a letter and one or two numbers.
bool is_extent(const std::string& word) {
  return word.size() > 1 && std::string_view("bhqkd").find(word[0]) != std::string_view::npos &&
         std::isdigit(static_cast<unsigned char>(word[1])) != 0;
}

// The word with every number in it changed; "" if that changes nothing.
template <typename Change>
std::string with_numbers(const std::string& word, Change&& change) {
  std::string result(1, word[0]);
  const char* at = word.data() + 1;
  const char* end = word.data() + word.size();
  while (at < end) {
    int64_t number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc{}) {
      result += *at++;
      continue;
    }
    result += std::to_string(change(number));
    at = next;
  }
  return result == word ? "" : result;
}

}  // namespace

std::vector<std::string> smaller_problems(const std::string& problem) {
  const Words words = words_of(problem);
  std::vector<std::string> smaller;
  const auto add = [&](const Words& candidate) {
    std::string text = text_of(candidate);
    if (text != problem && parses(text)) smaller.push_back(std::move(text));
  };
  for (size_t i = 1; i < words.size(); ++i) {
    if (is_extent(words[i])) continue;
    Words without = words;
    without.erase(without.begin() + static_cast<ptrdiff_t>(i));
    add(without);  // the dtype cannot go: then it does not parse
  }
  const auto changed = [&](auto&& change) {
    for (size_t i = 1; i < words.size(); ++i) {
      if (!is_extent(words[i])) continue;
      Words candidate = words;
      candidate[i] = with_numbers(words[i], change);
      if (!candidate[i].empty()) add(candidate);
    }
  };
  changed([](int64_t n) { return std::min<int64_t>(n, 1); });
  changed([](int64_t n) { return n / 2 > 0 ? n / 2 : n; });
  changed([](int64_t n) { return n > 1 ? n - 1 : n; });
  return smaller;
}

Case shrink(Case failing, const std::function<bool(const Case&)>& fails, int tries) {
  const auto try_case = [&](const Case& candidate) {
    if (tries <= 0) return false;
    --tries;
    if (!fails(candidate)) return false;
    failing = candidate;
    return true;
  };
  if (failing.storage != Storage::dense) {
    Case plain = failing;
    plain.storage = Storage::dense;
    try_case(plain);
  }
  if (!failing.oracle && failing.input != InputKind::normal) {
    Case plain = failing;
    plain.input = InputKind::normal;
    try_case(plain);
  }
  for (bool smaller = true; smaller && tries > 0;) {
    smaller = false;
    for (const std::string& problem : smaller_problems(failing.problem)) {
      Case candidate = failing;
      candidate.problem = problem;
      if (try_case(candidate)) {
        smaller = true;
        break;
      }
    }
  }
  return failing;
}

}  // namespace attune::lab
