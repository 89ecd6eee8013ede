#include "lab/output.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/error.hpp"
#include "jit/files.hpp"

namespace attune::lab {
namespace {

namespace fs = std::filesystem;

}  // namespace

void prepare_output() {
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);
  // The lowest free number is given to what is opened next. Read-only: writing there stays an error.
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) < 0) open("/dev/null", O_RDONLY);
}

void flush_output() {
  const bool lost_before = std::ferror(stdout) != 0;
  if (std::fflush(stdout) != 0) throw OutputLost(std::error_code(errno, std::generic_category()));
  if (lost_before) throw OutputLost(std::make_error_code(std::errc::io_error));
}

std::string text_of_file(const std::string& path) {
  std::error_code ignored;
  std::ostringstream text;
  std::ifstream file(path);
  if (!fs::is_directory(path, ignored)) text << file.rdbuf();
  // An empty file gives no character, which the stream calls a failure.
  if (!file.is_open() || file.bad() || fs::is_directory(path, ignored))
    fail(ATTUNE_INVALID_ARGUMENT, "{}: cannot be read", path);
  return std::move(text).str();
}

void write_file(const std::string& path, std::string_view text) {
  const auto complain = [&](const std::string& why) {
    fail(ATTUNE_INVALID_ARGUMENT, "{}: cannot be written: {}", path, why);
  };
  std::error_code ignored;
  const fs::path place = fs::weakly_canonical(path, ignored);  // a link stays a link
  if (place.empty() || (fs::exists(place, ignored) && !fs::is_regular_file(place, ignored))) {
    errno = 0;
    std::ofstream file(path);
    file << text;
    file.close();
    if (!file) complain(std::strerror(errno));
    return;
  }
  if (const std::string why = jit::replace_file(AT_FDCWD, place.string(), 0644, {text}); !why.empty()) complain(why);
}

void try_folder(std::string_view option, const std::string& folder) {
  const auto complain = [&](const std::string& why) {
    fail(ATTUNE_INVALID_ARGUMENT, "{} is '{}', where no file can be written: {}", option, folder, why);
  };
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) complain(error.message());
  std::string probe = (fs::path(folder) / ".attune-XXXXXX").string();
  const int descriptor = mkstemp(probe.data());
  if (descriptor < 0) complain(std::strerror(errno));
  const bool written = write(descriptor, "attune\n", 7) == 7;
  const std::string why = std::strerror(errno);
  close(descriptor);
  unlink(probe.c_str());
  if (!written) complain(why);
}

void try_folder_of(std::string_view option, const std::string& file) {
  const fs::path folder = fs::path(file).parent_path();
  try_folder(option, folder.empty() ? "." : folder.string());
}

}  // namespace attune::lab
