// Device sources: those embedded in the library, or those of a checkout named by ATTUNE_SOURCE_DIR (edit and run).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attune::jit {

struct SourceFile {
  std::string path;  // as written in an #include: "kernels/common/types.cuh"
  std::string text;
};

class Sources {
 public:
  Sources() = default;                     // the embedded ones
  explicit Sources(std::string checkout);  // "": the embedded ones; otherwise a directory, read anew each time
  static Sources from_environment();       // ATTUNE_SOURCE_DIR

  std::string read(std::string_view path) const;       // throws ATTUNE_COMPILE_ERROR if there is no such file
  std::string origin() const;                          // "embedded" or the directory
  bool constant() const { return checkout_.empty(); }  // the same whenever they are read

  // Every file that `text` includes as "kernels/...", directly or not: each once, in order of first sight. Other
  // includes belong to the host's side of a shared header.
  std::vector<SourceFile> closure(std::string_view text) const;

 private:
  std::string checkout_;
};

// The text without comments, with runs of blanks as one and without blank lines: two sources that differ in nothing
// else give the same kernel. (But __LINE__ must not reach device code.)
std::string without_comments(std::string_view text);

}  // namespace attune::jit
