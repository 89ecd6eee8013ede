#include "jit/source.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "core/error.hpp"
#include "jit/embedded.hpp"

namespace attune::jit {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// One pass over C++ text; append() squeezes blanks, copy() does not.
class Stripper {
 public:
  explicit Stripper(std::string_view text) : text_(text) {}

  std::string run() {
    while (at_ < text_.size()) step();
    while (!out_.empty() && (out_.back() == '\n' || out_.back() == ' ')) out_.pop_back();
    out_ += '\n';
    return std::move(out_);
  }

 private:
  void step() {
    const char c = text_[at_];
    if (starts("//")) {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (starts("/*")) {
      const size_t end = text_.find("*/", at_ + 2);
      at_ = end == std::string_view::npos ? text_.size() : end + 2;
      append(' ');
    } else if (c == '"' && at_ > 0 && text_[at_ - 1] == 'R') {
      raw_string();
    } else if (c == '"' || (c == '\'' && !digit_separator())) {
      literal(c);
    } else {
      append(c);
      ++at_;
    }
  }

  bool starts(std::string_view prefix) const { return text_.substr(at_, prefix.size()) == prefix; }

  // 1'000: the word that the quote follows begins with a digit.
  bool digit_separator() const {
    size_t begin = at_;
    while (begin > 0 && (is_word(text_[begin - 1]) || text_[begin - 1] == '\'')) --begin;
    return begin < at_ && std::isdigit(static_cast<unsigned char>(text_[begin])) != 0;
  }

  void literal(char quote) {
    copy(1);
    while (at_ < text_.size() && text_[at_] != quote && text_[at_] != '\n') copy(text_[at_] == '\\' ? 2 : 1);
    copy(1);
  }

  void raw_string() {
    const size_t open = text_.find('(', at_);
    if (open == std::string_view::npos) return copy(1);
    const std::string close = fmt::format("){}\"", text_.substr(at_ + 1, open - at_ - 1));
    const size_t end = text_.find(close, open);
    copy((end == std::string_view::npos ? text_.size() : end + close.size()) - at_);
  }

  void copy(size_t count) {
    count = std::min(count, text_.size() - at_);
    out_ += text_.substr(at_, count);
    at_ += count;
  }

  void append(char c) {
    if (c == '\t' || c == '\r') c = ' ';
    if (c == '\n') {
      while (!out_.empty() && out_.back() == ' ') out_.pop_back();
      if (!out_.empty() && out_.back() != '\n') out_ += c;
    } else if (c != ' ' || (!out_.empty() && out_.back() != ' ' && out_.back() != '\n')) {
      out_ += c;
    }
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string out_;
};

// The paths of `#include "kernels/..."` lines.
std::vector<std::string> device_includes(std::string_view text) {
  std::vector<std::string> paths;
  std::istringstream lines(without_comments(text));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with('#')) continue;
    size_t at = line.find_first_not_of(' ', 1);
    if (at == std::string::npos || line.compare(at, 7, "include") != 0) continue;
    const size_t open = line.find('"', at), close = line.find('"', open + 1);
    if (open == std::string::npos || close == std::string::npos) continue;
    std::string path = line.substr(open + 1, close - open - 1);
    if (path.starts_with("kernels/")) paths.push_back(std::move(path));
  }
  return paths;
}

}  // namespace

std::string without_comments(std::string_view text) { return Stripper(text).run(); }

Sources::Sources(std::string checkout) : checkout_(std::move(checkout)) {}

Sources Sources::from_environment() {
  const char* directory = std::getenv("ATTUNE_SOURCE_DIR");
  return Sources(directory == nullptr ? "" : directory);
}

std::string Sources::origin() const { return checkout_.empty() ? "embedded" : checkout_; }

std::string Sources::read(std::string_view path) const {
  if (checkout_.empty()) {
    for (const EmbeddedFile* file = embedded_files; file->path != nullptr; ++file)
      if (path == file->path) return file->text;
    fail(ATTUNE_COMPILE_ERROR, "device source '{}' is not embedded in this library", path);
  }
  const std::string full = fmt::format("{}/{}", checkout_, path);
  std::ifstream file(full, std::ios::binary);
  if (!file) fail(ATTUNE_COMPILE_ERROR, "device source {} (of ATTUNE_SOURCE_DIR): {}", full, std::strerror(errno));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<SourceFile> Sources::closure(std::string_view text) const {
  std::vector<SourceFile> files;
  std::vector<std::string> waiting = device_includes(text);
  std::ranges::reverse(waiting);
  while (!waiting.empty()) {
    const std::string path = std::move(waiting.back());
    waiting.pop_back();
    if (std::ranges::any_of(files, [&](const SourceFile& file) { return file.path == path; })) continue;
    files.push_back({path, read(path)});
    std::vector<std::string> next = device_includes(files.back().text);
    waiting.insert(waiting.end(), next.rbegin(), next.rend());
  }
  return files;
}

}  // namespace attune::jit
