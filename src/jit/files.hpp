// Files that others may have laid, may write, or may cut short meanwhile. They are opened without waiting, judged by
// the open descriptor, read into memory and replaced as a whole. Nothing is mapped: to touch a page that a file has
// lost since is a SIGBUS.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace attune::jit {

// Owns an open file; closes it.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }

  explicit operator bool() const { return number_ >= 0; }
  int get() const { return number_; }
  void close();

 private:
  int number_;
};

// Why what the file or directory holds may be from somebody else; "" if only this process's user and root can have
// written it. The sticky bit keeps the users of a directory from each other's files, which are then judged one by one.
std::string distrust(const struct stat& status);

// A regular file, open for reading. A FIFO or a device is not waited for.
class RegularFile {
 public:
  // `directory` may be AT_FDCWD. O_NOFOLLOW among the flags refuses a symbolic link in the last place.
  RegularFile(int directory, const std::string& name, int flags = 0);

  explicit operator bool() const { return problem_.empty(); }
  const std::string& problem() const { return problem_; }  // why it is not open
  bool absent() const { return absent_; }
  const struct stat& status() const { return status_; }
  uint64_t size() const { return static_cast<uint64_t>(status_.st_size); }
  int get() const { return descriptor_.get(); }

  bool read(void* data, size_t bytes, uint64_t offset) const;  // false unless all of it is there

 private:
  Descriptor descriptor_;
  struct stat status_{};
  std::string problem_;
  bool absent_ = false;
};

// A directory, links followed, that nobody but this process's user and root fills; see distrust().
class TrustedDirectory {
 public:
  enum class Missing { stays, is_made };  // made with all that is missing above it, for this user alone (0700)
  explicit TrustedDirectory(const std::string& path, Missing missing = Missing::stays);

  explicit operator bool() const { return problem_.empty(); }
  const std::string& problem() const { return problem_; }
  bool absent() const { return absent_; }
  int get() const { return descriptor_.get(); }

 private:
  Descriptor descriptor_;
  std::string problem_;
  bool absent_ = false;
};

// Writes beside the file's place, flushes and renames: a reader sees all of it or none. What fails leaves nothing
// behind, and no limit on file sizes ends the process. "" or why it failed.
std::string replace_file(int directory, const std::string& name, mode_t mode,
                         std::initializer_list<std::string_view> parts);

// "x" of "x.0123456789abcdef.part", the form of the names that replace_file writes under; nullopt for any other name.
std::optional<std::string_view> place_of_part(std::string_view name);

bool is_hex(std::string_view text);  // lower case

}  // namespace attune::jit
