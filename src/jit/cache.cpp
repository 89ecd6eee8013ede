#include "jit/cache.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <vector>

#include "core/error.hpp"
#include "jit/paths.hpp"

namespace attune::jit {
namespace {

constexpr char magic[8] = {'A', 'T', 'N', 'C', 'U', 'B', 'I', 'N'};
constexpr uint32_t format_version = 2;
constexpr std::string_view entry_suffix = ".cubin", part_suffix = ".part";
constexpr time_t abandoned_seconds = 3600;  // a .part file this old belongs to no living writer
constexpr time_t refresh_seconds = 3600;    // how stale the time of last use may be

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t header_bytes;
  uint8_t key[16];
  uint64_t payload_bytes;
  uint64_t payload_hash;
  int32_t registers, stack_bytes, spill_store_bytes, spill_load_bytes;
  int32_t ignored_setmaxnreg, serialised_wgmma;
  uint64_t header_hash;  // of everything above
};
static_assert(sizeof(Header) == 80);

uint64_t hash_of(const Header& header) { return XXH3_64bits(&header, offsetof(Header, header_hash)); }

Header header_for(const Key& key, std::string_view cubin, const BuildReport& report) {
  Header header{};
  std::memcpy(header.magic, magic, sizeof magic);
  header.version = format_version;
  header.header_bytes = sizeof header;
  std::ranges::copy(key.bytes, header.key);
  header.payload_bytes = cubin.size();
  header.payload_hash = XXH3_64bits(cubin.data(), cubin.size());
  header.registers = report.registers;
  header.stack_bytes = report.stack_bytes;
  header.spill_store_bytes = report.spill_store_bytes;
  header.spill_load_bytes = report.spill_load_bytes;
  header.ignored_setmaxnreg = report.ignored_setmaxnreg ? 1 : 0;
  header.serialised_wgmma = report.serialised_wgmma ? 1 : 0;
  header.header_hash = hash_of(header);
  return header;
}

BuildReport report_of(const Header& header) {
  BuildReport report;
  report.registers = header.registers;
  report.stack_bytes = header.stack_bytes;
  report.spill_store_bytes = header.spill_store_bytes;
  report.spill_load_bytes = header.spill_load_bytes;
  report.ignored_setmaxnreg = header.ignored_setmaxnreg != 0;
  report.serialised_wgmma = header.serialised_wgmma != 0;
  return report;
}

class File {
 public:
  File(const std::string& path, int flags) : descriptor_(open(path.c_str(), flags | O_CLOEXEC, 0644)) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  explicit operator bool() const { return descriptor_ >= 0; }
  int get() const { return descriptor_; }

  bool write_all(std::string_view data) const {
    while (!data.empty()) {
      const ssize_t written = ::write(descriptor_, data.data(), data.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return false;
      data.remove_prefix(static_cast<size_t>(written));
    }
    return true;
  }

  bool read_all(void* data, size_t size) const {
    auto* at = static_cast<char*>(data);
    while (size > 0) {
      const ssize_t count = ::read(descriptor_, at, size);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      at += count;
      size -= static_cast<size_t>(count);
    }
    return true;
  }

 private:
  int descriptor_;
};

// False with errno set.
bool write_file(const std::string& path, const Header& header, std::string_view cubin) {
  const File file(path, O_WRONLY | O_CREAT | O_EXCL);
  return file && file.write_all({reinterpret_cast<const char*>(&header), sizeof header}) && file.write_all(cubin) &&
         fsync(file.get()) == 0;
}

}  // namespace

Cache::Cache(std::string directory, uint64_t limit_bytes)
    : directory_(std::move(directory)), limit_bytes_(limit_bytes) {}

std::string Cache::file_of(const Key& key) const {
  return fmt::format("{}/{}{}", directory_, to_string(key), entry_suffix);
}

std::optional<CacheEntry> Cache::load(const Key& key) const {
  if (directory_.empty()) return std::nullopt;
  const File file(file_of(key), O_RDONLY);
  struct stat status{};
  if (!file || fstat(file.get(), &status) != 0) return std::nullopt;

  Header header{};
  if (!file.read_all(&header, sizeof header)) return std::nullopt;
  const bool header_sound = std::memcmp(header.magic, magic, sizeof magic) == 0 && header.version == format_version &&
                            header.header_hash == hash_of(header) && std::ranges::equal(key.bytes, header.key);
  if (!header_sound || sizeof header + header.payload_bytes != static_cast<uint64_t>(status.st_size))
    return std::nullopt;
  std::string cubin(header.payload_bytes, '\0');
  if (!file.read_all(cubin.data(), cubin.size())) return std::nullopt;
  if (XXH3_64bits(cubin.data(), cubin.size()) != header.payload_hash) return std::nullopt;

  // The time of last use, by which entries leave; a read-only cache keeps its times.
  if (std::time(nullptr) - status.st_mtime > refresh_seconds) futimens(file.get(), nullptr);
  return CacheEntry{std::move(cubin), report_of(header)};
}

void Cache::save(const Key& key, std::string_view cubin, const BuildReport& report) {
  if (directory_.empty()) return;
  static std::atomic<uint64_t> counter = 0;
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  const std::string place = file_of(key);
  const std::string part = fmt::format("{}.{}.{}{}", place, getpid(), counter++, part_suffix);
  std::string complaint;
  if (!write_file(part, header_for(key, cubin, report), cubin) || rename(part.c_str(), place.c_str()) != 0) {
    complaint = fmt::format("{}: {}", part, std::strerror(errno));
    unlink(part.c_str());
  }
  if (complaint.empty()) trim(place);
  const std::lock_guard lock(mutex_);
  complaint_ = std::move(complaint);
}

std::string Cache::complaint() const {
  const std::lock_guard lock(mutex_);
  return complaint_;
}

// Another process may trim at the same time: a file that is gone already is no error.
void Cache::trim(const std::string& keep) const {
  struct Entry {
    std::string path;
    uint64_t bytes;
    timespec used;
  };
  std::vector<Entry> entries;
  uint64_t total = 0;
  const time_t now = std::time(nullptr);
  DIR* directory = opendir(directory_.c_str());
  if (directory == nullptr) return;
  while (const dirent* item = readdir(directory)) {
    const std::string_view name = item->d_name;
    const std::string path = fmt::format("{}/{}", directory_, name);
    struct stat status{};
    if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    if (name.ends_with(part_suffix)) {
      if (now - status.st_mtime > abandoned_seconds) unlink(path.c_str());
    } else if (name.ends_with(entry_suffix)) {
      total += static_cast<uint64_t>(status.st_size);
      if (path != keep) entries.push_back({path, static_cast<uint64_t>(status.st_size), status.st_mtim});
    }
  }
  closedir(directory);

  std::ranges::sort(entries, [](const Entry& a, const Entry& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  for (const Entry& entry : entries) {
    if (total <= limit_bytes_) break;
    unlink(entry.path.c_str());
    total -= entry.bytes;
  }
}

std::string default_cache_directory() {
  if (const std::string own = environment("ATTUNE_CACHE_DIR"); !own.empty()) return own;
  if (const std::string user = environment("XDG_CACHE_HOME"); !user.empty()) return user + "/attune";
  if (const std::string home = environment("HOME"); !home.empty()) return home + "/.cache/attune";
  return {};
}

uint64_t default_cache_bytes() {
  uint64_t megabytes = 512;
  const std::string text = environment("ATTUNE_CACHE_MB");
  if (!text.empty()) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), megabytes);
    if (error != std::errc() || end != text.data() + text.size() || megabytes > (uint64_t{1} << 40))
      fail(ATTUNE_INVALID_ARGUMENT, "ATTUNE_CACHE_MB is '{}'; it must be a number of megabytes", text);
  }
  return megabytes << 20;
}

}  // namespace attune::jit
