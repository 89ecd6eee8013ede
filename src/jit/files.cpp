#include "jit/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>

namespace attune::jit {
namespace {

constexpr std::string_view part_suffix = ".part";
constexpr size_t part_digits = 16;
constexpr char no_regular_file[] = "it is no regular file";

// A write beyond the limit on file sizes (ulimit -f) raises SIGXFSZ in the thread that writes, and by default the
// signal ends the process. Held back and taken away here, it leaves the write with EFBIG. Actions belong to the whole
// process and stay as they are.
class HeldFileSizeSignal {
 public:
  HeldFileSizeSignal() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &signal_, &former_mask_);
  }
  HeldFileSizeSignal(const HeldFileSizeSignal&) = delete;
  HeldFileSizeSignal& operator=(const HeldFileSizeSignal&) = delete;
  ~HeldFileSizeSignal() {
    const timespec no_time{};
    while (!was_pending_ && sigtimedwait(&signal_, nullptr, &no_time) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &former_mask_, nullptr);
  }

 private:
  sigset_t signal_{}, former_mask_{};
  bool was_pending_ = false;
};

bool write_all(int descriptor, std::string_view data) {
  while (!data.empty()) {
    const ssize_t written = ::write(descriptor, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    data.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// At random, since processes in different containers may share a directory and have the same number.
std::string part_of(const std::string& name) {
  uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) return {};
  return fmt::format("{}.{:0{}x}{}", name, number, part_digits, part_suffix);
}

// With all that is missing above it. 0, or errno of the first step that failed; what was there already is no failure.
int make_directory(const std::string& path) {
  int failure = 0;
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    if (mkdir(path.substr(0, end).c_str(), 0700) != 0 && errno != EEXIST && failure == 0) failure = errno;
    if (end == std::string::npos) return failure;
  }
}

// -1 with errno set.
int open_directory(const std::string& path, bool make) {
  const auto attempt = [&] { return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); };
  int number = attempt();
  if (number < 0 && errno == ENOENT && make) {
    const int failure = make_directory(path);
    number = attempt();
    if (number < 0 && failure != 0) errno = failure;
  }
  return number;
}

}  // namespace

void Descriptor::close() {
  if (number_ >= 0) ::close(number_);
  number_ = -1;
}

std::string distrust(const struct stat& status) {
  const uid_t user = geteuid();
  if (status.st_uid != user && status.st_uid != 0)
    return fmt::format("it belongs to user {}, not to user {}, who runs this process, or to root", status.st_uid, user);
  const bool others_write = (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  const bool each_their_own = S_ISDIR(status.st_mode) && (status.st_mode & S_ISVTX) != 0;
  if (others_write && !each_their_own)
    return fmt::format("its group or others may write it (mode {:04o}); chmod go-w allows it",
                       status.st_mode & unsigned{07777});
  return {};
}

RegularFile::RegularFile(int directory, const std::string& name, int flags)
    : descriptor_(openat(directory, name.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | flags)) {
  if (!descriptor_) {
    const int error = errno;
    absent_ = error == ENOENT;
    if (error == ELOOP)
      problem_ = "it is a symbolic link";
    else
      problem_ = error == ENXIO ? no_regular_file : std::strerror(error);  // ENXIO: a socket
    return;
  }
  if (fstat(descriptor_.get(), &status_) != 0)
    problem_ = std::strerror(errno);
  else if (!S_ISREG(status_.st_mode))
    problem_ = no_regular_file;
  if (!problem_.empty()) descriptor_.close();
}

bool RegularFile::read(void* data, size_t bytes, uint64_t offset) const {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t count = pread(descriptor_.get(), at, bytes, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    at += count;
    offset += static_cast<uint64_t>(count);
    bytes -= static_cast<size_t>(count);
  }
  return true;
}

TrustedDirectory::TrustedDirectory(const std::string& path, Missing missing)
    : descriptor_(open_directory(path, missing == Missing::is_made)) {
  struct stat status{};
  if (!descriptor_) absent_ = errno == ENOENT;
  if (!descriptor_ || fstat(descriptor_.get(), &status) != 0)
    problem_ = std::strerror(errno);
  else
    problem_ = distrust(status);
  if (!problem_.empty()) descriptor_.close();
}

std::string replace_file(int directory, const std::string& name, mode_t mode,
                         std::initializer_list<std::string_view> parts) {
  const HeldFileSizeSignal held;
  const std::string part = part_of(name);
  if (part.empty()) return std::strerror(errno);
  const Descriptor file(openat(directory, part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!file) return std::strerror(errno);
  const bool written = std::ranges::all_of(parts, [&](std::string_view data) { return write_all(file.get(), data); }) &&
                       fsync(file.get()) == 0;
  if (written && renameat(directory, part.c_str(), directory, name.c_str()) == 0) return {};
  std::string problem = std::strerror(errno);
  unlinkat(directory, part.c_str(), 0);
  return problem;
}

std::optional<std::string_view> place_of_part(std::string_view name) {
  if (!name.ends_with(part_suffix)) return std::nullopt;
  name.remove_suffix(part_suffix.size());
  if (name.size() <= part_digits + 1 || name[name.size() - part_digits - 1] != '.') return std::nullopt;
  if (!is_hex(name.substr(name.size() - part_digits))) return std::nullopt;
  name.remove_suffix(part_digits + 1);
  return name;
}

bool is_hex(std::string_view text) { return text.find_first_not_of("0123456789abcdef") == std::string_view::npos; }

}  // namespace attune::jit
