#include "lab/evidence/stamp.hpp"

#include <xxhash.h>

#include <algorithm>
#include <vector>

#include "core/error.hpp"
#include "jit/embedded.hpp"
#include "jit/source.hpp"

namespace attune::jit {
extern const EmbeddedFile kernel_host_files[];  // lab/CMakeLists.txt
}

namespace attune::lab {
namespace {

const char* entry_of(const jit::EmbeddedFile* table, std::string_view path) {
  for (const jit::EmbeddedFile* file = table; file->path != nullptr; ++file)
    if (path == file->path) return file->text;
  return nullptr;
}

// nullptr if there is no such file.
const char* embedded_text(std::string_view path) {
  return entry_of(path.ends_with(".cuh") ? jit::embedded_files : jit::kernel_host_files, path);
}

// The files under kernels/ that a text includes.
std::vector<std::string> kernel_includes(std::string_view text) {
  std::vector<std::string> paths;
  constexpr std::string_view begin = "#include \"kernels/";
  for (size_t at = text.find(begin); at != std::string_view::npos; at = text.find(begin, at + 1)) {
    const size_t first = at + begin.size() - std::string_view("kernels/").size();
    paths.emplace_back(text.substr(first, text.find('"', first) - first));
  }
  return paths;
}

}  // namespace

std::string host_part(std::string_view text) {
  enum class Branch { host, device, either };
  std::vector<Branch> branches;  // of the conditionals that the line is in
  std::string kept;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end);
    if (line.starts_with("#ifdef __CUDACC_RTC__") || line.starts_with("#ifdef ATTUNE_DEVICE"))
      branches.push_back(Branch::device);
    else if (line.starts_with("#ifndef __CUDACC_RTC__"))
      branches.push_back(Branch::host);
    else if (line.starts_with("#if"))
      branches.push_back(Branch::either);
    else if (line.starts_with("#else") && !branches.empty() && branches.back() != Branch::either)
      branches.back() = branches.back() == Branch::host ? Branch::device : Branch::host;
    if (std::ranges::find(branches, Branch::device) == branches.end()) kept += line;
    if (line.starts_with("#endif") && !branches.empty()) branches.pop_back();
  }
  return kept;
}

std::set<std::string> host_files_of(std::string_view kernel) {
  std::set<std::string> files;
  std::vector<std::string> waiting = {fmt::format("kernels/{}.cpp", kernel)};
  if (embedded_text(waiting[0]) == nullptr)
    fail(ATTUNE_INTERNAL_ERROR, "kernel {}: its host file is not {}", kernel, waiting[0]);
  while (!waiting.empty()) {
    const std::string path = waiting.back();
    waiting.pop_back();
    const char* text = embedded_text(path);
    if (text == nullptr || path.ends_with("_cost.hpp") || !files.insert(path).second) continue;
    for (const std::string& header : kernel_includes(text)) {
      waiting.push_back(header);
      if (header.ends_with(".hpp")) waiting.push_back(header.substr(0, header.size() - 4) + ".cpp");
    }
  }
  return files;
}

std::string host_hash_of(std::string_view kernel) {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  for (const std::string& path : host_files_of(kernel)) {
    const std::string text = path + "\n" + jit::without_comments(host_part(embedded_text(path)));
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
