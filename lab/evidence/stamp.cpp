#include "lab/evidence/stamp.hpp"

#include <xxhash.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include "core/error.hpp"
#include "jit/embedded.hpp"
#include "jit/source.hpp"

namespace attune::jit {
extern const EmbeddedFile kernel_host_files[];  // lab/CMakeLists.txt
}

namespace attune::lab {
namespace {

const char* compiled_in(const std::string& path) {
  for (const jit::EmbeddedFile* files : {jit::kernel_host_files, jit::embedded_files})
    for (const jit::EmbeddedFile* file = files; file->path != nullptr; ++file)
      if (path == file->path) return file->text;
  return nullptr;
}

// Conditions on macros that only device code has, and that the host therefore knows to be false.
bool is_device_macro(std::string_view name) { return name == "__CUDACC_RTC__" || name == "ATTUNE_DEVICE"; }

// The lines of a text without comments that the host compiles. Conditions on other macros keep both of their sides.
std::string host_lines(const std::string& text) {
  struct Condition {
    bool is_known;  // it asks for a device macro
    bool hides;     // the host skips the side that is being read
  };
  std::vector<Condition> conditions;
  std::istringstream lines(jit::without_comments(text));
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string directive, macro;
    words >> directive >> macro;
    const auto hidden = [&] {
      return std::ranges::any_of(conditions, [](const Condition& condition) { return condition.hides; });
    };
    bool is_kept = !hidden();
    if (directive == "#if" || directive == "#ifdef" || directive == "#ifndef") {
      const bool known = directive != "#if" && is_device_macro(macro);
      conditions.push_back({known, known && directive == "#ifdef"});
      is_kept = is_kept && !known;
    } else if (directive == "#else" && !conditions.empty() && conditions.back().is_known) {
      conditions.back().hides = !conditions.back().hides;
      is_kept = false;
    } else if (directive == "#endif" && !conditions.empty()) {
      is_kept = is_kept && !conditions.back().is_known;
      conditions.pop_back();
    }
    if (is_kept) kept += line + '\n';
  }
  return kept;
}

std::vector<std::string> includes_of(std::string_view text) {
  std::vector<std::string> paths;
  constexpr std::string_view begin = "#include \"kernels/";
  for (size_t at = text.find(begin); at != std::string_view::npos; at = text.find(begin, at + 1)) {
    const size_t first = at + begin.size() - std::string_view("kernels/").size();
    paths.emplace_back(text.substr(first, text.find('"', first) - first));
  }
  return paths;
}

bool is_cost_file(std::string_view path) { return path.ends_with("_cost.hpp") || path.ends_with("_cost.cpp"); }

}  // namespace

std::string host_hash_of(std::string_view kernel, const ReadFile& read) {
  std::set<std::string> seen;
  std::vector<std::string> waiting = {fmt::format("kernels/{}.cpp", kernel)};
  if (read(waiting[0]) == nullptr)
    fail(ATTUNE_INTERNAL_ERROR, "kernel {}: its host file is not {}", kernel, waiting[0]);
  std::map<std::string, std::string> texts;  // by path
  while (!waiting.empty()) {
    const std::string path = waiting.back();
    waiting.pop_back();
    if (is_cost_file(path) || !seen.insert(path).second) continue;
    const char* text = read(path);
    if (text == nullptr) continue;
    const std::string& host = texts[path] = host_lines(text);
    for (const std::string& included : includes_of(host)) {
      waiting.push_back(included);
      if (included.ends_with(".hpp")) waiting.push_back(included.substr(0, included.size() - 4) + ".cpp");
    }
  }
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  for (const auto& [path, text] : texts) {
    const std::string entry = path + "\n" + text;
    XXH3_128bits_update(&state, entry.data(), entry.size());
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(&state);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string host_hash_of(std::string_view kernel) { return host_hash_of(kernel, compiled_in); }

std::string stamp_of(const jit::Built& built, std::string_view kernel) {
  return fmt::format("{}-{}", built.info.code_hash, host_hash_of(kernel));
}

std::string subject_of(const jit::DeviceUnit& unit, std::string_view arch) {
  return fmt::format("{} {}", label_of(unit), arch);
}

}  // namespace attune::lab
