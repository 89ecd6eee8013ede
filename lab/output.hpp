// What the lab reads and writes: standard output, which has to arrive, remarks on standard error, which need not, and
// files, which are read and written as a whole or not at all.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace attune::lab {

// Standard output cannot be written: a full disk, a pipe that nobody reads, a descriptor that was closed.
class OutputLost : public std::runtime_error {
 public:
  explicit OutputLost(const std::error_code& why)
      : std::runtime_error("standard output cannot be written: " + why.message()) {}
};

// At the start of a process: a pipe that nobody reads and a file beyond the limit on sizes (ulimit -f) become errors
// where they are written, instead of signals that end the process without a word, and the numbers of closed standard
// streams are taken, so that no file gets them.
void prepare_output();

// Everything printed so far has been written. Throws OutputLost.
void flush_output();

// On standard error. Nobody may be there to read it.
template <typename... Args>
void remark(fmt::format_string<Args...> text, Args&&... args) {
  std::fputs(fmt::format(text, std::forward<Args>(args)...).c_str(), stderr);
  std::fflush(stderr);
}

// All of a file. Throws ATTUNE_INVALID_ARGUMENT, for a folder too.
std::string text_of_file(const std::string& path);

// Written beside its place and renamed; what is no regular file, such as /dev/stdout, is written in place. Throws
// ATTUNE_INVALID_ARGUMENT.
void write_file(const std::string& path, std::string_view text);

// Whether files can be written into the folder, which is made if it is missing: asked before minutes are spent on what
// shall go there. `option` names it. Throws ATTUNE_INVALID_ARGUMENT.
void try_folder(std::string_view option, const std::string& folder);
// The same of the folder that the file lies in.
void try_folder_of(std::string_view option, const std::string& file);

}  // namespace attune::lab
