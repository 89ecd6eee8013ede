#include "lab/try/kernel_file.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <sstream>

#include "core/error.hpp"
#include "lab/output.hpp"

namespace attune::lab {
namespace {

constexpr std::string_view opening = "attune kernel";
constexpr int most_lines = 10;     // of the comment
constexpr int within_lines = 100;  // of the file, the comment begins
constexpr std::array tensors{"Q", "K", "V", "O", "LSE"};
constexpr std::array floats{"scale", "scale_log2"};
constexpr std::array features{"f16", "bf16", "f32", "causal", "causal-tl", "causal-br", "groups"};
constexpr const char* known_keys = "entry, threads, grid, shared, arguments, defines, layout and supports";

std::string trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1));
}

// At commas outside of brackets.
std::vector<std::string> list_of(std::string_view text) {
  std::vector<std::string> items;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '(') ++depth;
    if (i < text.size() && text[i] == ')') --depth;
    if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
    items.push_back(trimmed(text.substr(begin, i - begin)));
    begin = i + 1;
  }
  return items;
}

template <typename Names>
bool is_one_of(const Names& names, std::string_view word) {
  return std::ranges::find(names, word) != names.end();
}

bool is_identifier(std::string_view word) {
  return !word.empty() && std::isdigit(static_cast<unsigned char>(word[0])) == 0 &&
         std::ranges::all_of(word, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

// The comment's lines after the opening one, with their numbers in the file.
struct Line {
  int number;
  std::string text;
};

std::vector<Line> comment_of(const std::string& path, const std::string& text) {
  std::istringstream stream(text);
  std::vector<Line> lines;
  bool open = false;
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    const std::string bare = trimmed(line);
    if (!open && number > within_lines) break;
    const std::string content = bare.starts_with("//") ? trimmed(std::string_view(bare).substr(2)) : "";
    if (!open) {
      open = content == opening;
      continue;
    }
    if (!bare.starts_with("//")) return lines;
    if (!content.empty()) lines.push_back({number, content});
  }
  if (!open)
    fail(ATTUNE_INVALID_ARGUMENT,
         "{}: none of its first {} lines is '// {}', which begins the comment that says how the kernel is launched; "
         "`attune try --new FILE` writes an example",
         path, within_lines, opening);
  return lines;
}

// Numbers that make an expression be read: whether it is one is found where it stands.
Variables any_variables() {
  return {{"b", 1}, {"h", 1}, {"hkv", 1}, {"q", 64}, {"k", 64}, {"d", 64}, {"dv", 64}, {"causal", 0}};
}

class HeaderReader {
 public:
  explicit HeaderReader(KernelFile& file) : file_(file) {}

  void read(const std::vector<Line>& lines) {
    if (lines.size() > most_lines)
      fail(ATTUNE_INVALID_ARGUMENT, "{}:{}: the comment has more than {} lines", file_.path, lines[most_lines].number,
           most_lines);
    for (const Line& line : lines) {
      number_ = line.number;
      const size_t colon = line.text.find(':');
      if (colon == std::string::npos)
        complain(fmt::format("'{}' is no line of the form 'key: value'; the keys are {}", line.text, known_keys));
      key_ = trimmed(std::string_view(line.text).substr(0, colon));
      if (!seen_.insert(key_).second) complain("it is there twice");
      read_value(trimmed(std::string_view(line.text).substr(colon + 1)));
    }
    number_ = lines.empty() ? 1 : lines.back().number;
    for (const char* needed : {"entry", "threads", "grid", "arguments", "supports"})
      if (!seen_.contains(needed)) {
        key_ = needed;
        complain("this line is missing in the comment");
      }
  }

 private:
  [[noreturn]] void complain(const std::string& what) const {
    fail(ATTUNE_INVALID_ARGUMENT, "{}:{}: {}: {}", file_.path, number_, key_, what);
  }

  std::string expression(const std::string& text) const {
    try {
      evaluate(text, any_variables());
    } catch (const Error& error) {
      complain(error.what());
    }
    return text;
  }

  void read_value(const std::string& value) {
    if (value.empty()) complain("there is no value");
    if (key_ == "entry") {
      if (!is_identifier(value)) complain(fmt::format("'{}' is no name of a function", value));
      file_.entry = value;
    } else if (key_ == "threads") {
      file_.threads = expression(value);
    } else if (key_ == "shared") {
      file_.shared = expression(value);
    } else if (key_ == "grid") {
      for (const std::string& item : list_of(value)) file_.grid.push_back(expression(item));
      if (file_.grid.size() > 3) complain(fmt::format("{} extents; 1 to 3 are allowed", file_.grid.size()));
    } else if (key_ == "arguments") {
      for (const std::string& item : list_of(value)) read_argument(item);
      for (const char* needed : {"Q", "K", "V", "O"})
        if (!file_.takes(needed)) complain(fmt::format("{} is missing", needed));
    } else if (key_ == "defines") {
      for (const std::string& item : list_of(value)) read_define(item);
    } else if (key_ == "layout") {
      if (value != "bshd" && value != "bhsd") complain(fmt::format("'{}'; bshd or bhsd is allowed", value));
      file_.heads_first = value == "bhsd";
    } else if (key_ == "supports") {
      for (const std::string& item : list_of(value)) read_support(item);
      if (std::ranges::none_of(
              file_.supports, [](const std::string& each) { return each == "f16" || each == "bf16" || each == "f32"; }))
        complain("an element type is missing: f16, bf16 or f32");
    } else {
      complain(fmt::format("there is no such key; the keys are {}", known_keys));
    }
  }

  void read_argument(const std::string& item) {
    if (!is_one_of(tensors, item) && !is_one_of(floats, item))
      expression(item.starts_with("long ") ? item.substr(5) : item);
    file_.arguments.push_back(item);
  }

  void read_define(const std::string& item) {
    const size_t equals = item.find('=');
    const std::string name = trimmed(std::string_view(item).substr(0, equals));
    if (equals == std::string::npos || !is_identifier(name))
      complain(fmt::format("'{}'; NAME = expression is allowed", item));
    file_.defines.emplace_back(name, expression(trimmed(std::string_view(item).substr(equals + 1))));
  }

  void read_support(const std::string& item) {
    if (is_identifier(item) || item.find('-') != std::string::npos) {
      if (!is_one_of(features, item) && is_identifier(item))
        complain(fmt::format("'{}'; {} or a condition such as d <= 128 is allowed", item, fmt::join(features, ", ")));
    }
    if (!is_one_of(features, item)) expression(item);
    file_.supports.push_back(item);
  }

  KernelFile& file_;
  int number_ = 0;
  std::string key_;
  std::set<std::string> seen_;
};

bool supports(const KernelFile& file, std::string_view feature) { return is_one_of(file.supports, feature); }

bool same_strides(const Problem& a, const Problem& b) {
  const auto same = [](const attune_strides& x, const attune_strides& y) {
    return x.batch == y.batch && x.row == y.row && x.head == y.head;
  };
  return same(a.q, b.q) && same(a.k, b.k) && same(a.v, b.v) && same(a.o, b.o) &&
         (!a.has(ATTUNE_LSE) || same(a.lse, b.lse));
}

template <typename T>
KernelArgument argument(const T& value) {
  KernelArgument made;
  made.size = sizeof value;
  std::memcpy(made.bytes.data(), &value, sizeof value);
  return made;
}

uint32_t extent(const KernelFile& file, const char* key, const std::string& expression, const Variables& variables,
                int64_t least, int64_t most) {
  const int64_t value = evaluate(expression, variables);
  if (value < least || value > most)
    fail(ATTUNE_INVALID_ARGUMENT, "{}: {}: '{}' is {}; {} to {} is allowed", file.path, key, expression, value, least,
         most);
  return static_cast<uint32_t>(value);
}

}  // namespace

bool KernelFile::takes(std::string_view wanted) const { return is_one_of(arguments, wanted); }

KernelFile read_kernel_file(const std::string& path) { return parse_kernel_file(path, text_of_file(path)); }

KernelFile parse_kernel_file(std::string path, std::string text) {
  KernelFile file;
  file.path = std::move(path);
  file.text = std::move(text);
  HeaderReader(file).read(comment_of(file.path, file.text));
  return file;
}

Variables variables_of(const Problem& p) {
  return {{"b", p.batch}, {"h", p.heads_q}, {"hkv", p.heads_kv}, {"q", p.seq_q},
          {"k", p.seq_k}, {"d", p.dim_qk},  {"dv", p.dim_v},     {"causal", static_cast<int64_t>(p.causal)}};
}

std::string refusal_of(const KernelFile& file, const Problem& problem) {
  const uint32_t others = problem.features & ~(ATTUNE_LSE | ATTUNE_SCALE);
  if (others != 0) return "it computes no features but causal masks, a scale and lse";
  if (!supports(file, name_of(problem.dtype))) return fmt::format("it does not support {}", name_of(problem.dtype));
  const bool top_left = static_cast<int>(problem.causal) == ATTUNE_CAUSAL_TOP_LEFT;
  if (static_cast<int>(problem.causal) != ATTUNE_CAUSAL_NONE && !supports(file, "causal") &&
      !supports(file, top_left ? "causal-tl" : "causal-br"))
    return fmt::format("it does not support {}", top_left ? "causal-tl" : "causal-br");
  if (problem.heads_q != problem.heads_kv && !supports(file, "groups")) return "it does not support groups";
  if (problem.has(ATTUNE_LSE) && !file.takes("LSE")) return "it writes no LSE; the word nolse asks for none";
  if (problem.has(ATTUNE_SCALE) && !file.takes("scale") && !file.takes("scale_log2")) return "it takes no scale";
  Problem dense = problem;
  set_contiguous(dense, file.heads_first ? Layout::bhsd : Layout::bshd);
  if (!same_strides(problem, dense))
    return fmt::format("its tensors are dense and {}", file.heads_first ? "bhsd, which a word asks for" : "bshd");
  const Variables variables = variables_of(problem);
  for (const std::string& each : file.supports)
    if (!is_one_of(features, each) && evaluate(each, variables) == 0) return fmt::format("it supports only {}", each);
  return "";
}

KernelLaunch launch_of(const KernelFile& file, const Problem& problem) {
  const Variables variables = variables_of(problem);
  KernelLaunch launch;
  launch.threads = extent(file, "threads", file.threads, variables, 1, 1024);
  launch.shared_bytes = extent(file, "shared", file.shared, variables, 0, 1 << 20);
  for (size_t i = 0; i < file.grid.size(); ++i)
    launch.grid.at(i) =
        extent(file, "grid", file.grid[i], variables, 1, i == 0 ? std::numeric_limits<int32_t>::max() : 65535);
  return launch;
}

std::vector<KernelArgument> arguments_of(const KernelFile& file, const Problem& problem, const Operands& operands,
                                         void* lse) {
  const Variables variables = variables_of(problem);
  const auto scale = static_cast<float>(problem.scale);
  std::vector<KernelArgument> made;
  for (const std::string& each : file.arguments) {
    if (each == "Q")
      made.push_back(argument(operands.in(Operand::q)));
    else if (each == "K")
      made.push_back(argument(operands.in(Operand::k)));
    else if (each == "V")
      made.push_back(argument(operands.in(Operand::v)));
    else if (each == "O")
      made.push_back(argument(operands.out(Operand::o)));
    else if (each == "LSE")
      made.push_back(argument(lse));
    else if (each == "scale")
      made.push_back(argument(scale));
    else if (each == "scale_log2")
      made.push_back(argument(scale * 1.44269504088896340736f));
    else if (each.starts_with("long "))
      made.push_back(argument(evaluate(std::string_view(each).substr(5), variables)));
    else
      made.push_back(
          argument(static_cast<int32_t>(extent(file, "arguments", each, variables, std::numeric_limits<int32_t>::min(),
                                               std::numeric_limits<int32_t>::max()))));
  }
  return made;
}

}  // namespace attune::lab
