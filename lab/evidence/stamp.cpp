#include "lab/evidence/stamp.hpp"

#include <xxhash.h>

#include <set>
#include <vector>

#include "core/error.hpp"
#include "jit/embedded.hpp"
#include "jit/source.hpp"

namespace attune::jit {
extern const EmbeddedFile kernel_host_files[];  // lab/CMakeLists.txt
}

namespace attune::lab {
namespace {

// nullptr if there is no such file.
const char* host_file(const std::string& path) {
  for (const jit::EmbeddedFile* file = jit::kernel_host_files; file->path != nullptr; ++file)
    if (path == file->path) return file->text;
  return nullptr;
}

// The .hpp files under kernels/ that a text includes.
std::vector<std::string> host_includes(std::string_view text) {
  std::vector<std::string> paths;
  constexpr std::string_view begin = "#include \"kernels/";
  for (size_t at = text.find(begin); at != std::string_view::npos; at = text.find(begin, at + 1)) {
    const size_t first = at + begin.size() - std::string_view("kernels/").size();
    const std::string path(text.substr(first, text.find('"', first) - first));
    if (path.ends_with(".hpp")) paths.push_back(path);
  }
  return paths;
}

}  // namespace

std::string host_hash_of(std::string_view kernel) {
  std::set<std::string> files;
  std::vector<std::string> waiting = {fmt::format("kernels/{}.cpp", kernel)};
  if (host_file(waiting[0]) == nullptr)
    fail(ATTUNE_INTERNAL_ERROR, "kernel {}: its host file is not {}", kernel, waiting[0]);
  while (!waiting.empty()) {
    const std::string path = waiting.back();
    waiting.pop_back();
    const char* text = host_file(path);
    if (text == nullptr || !files.insert(path).second) continue;
    for (const std::string& header : host_includes(text)) {
      waiting.push_back(header);
      waiting.push_back(header.substr(0, header.size() - 4) + ".cpp");
    }
  }
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  for (const std::string& path : files) {
    const std::string text = path + "\n" + jit::without_comments(host_file(path));
    XXH3_128bits_update(&state, text.data(), text.size());
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(&state);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string stamp_of(const jit::Built& built, std::string_view kernel) {
  return fmt::format("{}-{}", built.info.code_hash, host_hash_of(kernel));
}

std::string subject_of(const jit::DeviceUnit& unit, std::string_view arch) {
  return fmt::format("{} {}", label_of(unit), arch);
}

}  // namespace attune::lab
