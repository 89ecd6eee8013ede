#include "jit/cache.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <ctime>
#include <vector>

#include "core/error.hpp"
#include "jit/cubin.hpp"
#include "jit/files.hpp"
#include "jit/paths.hpp"

namespace attune::jit {
namespace {

constexpr char magic[8] = {'A', 'T', 'N', 'C', 'U', 'B', 'I', 'N'};
constexpr uint32_t format_version = 2;
constexpr std::string_view entry_suffix = ".cubin";
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

bool is_entry(std::string_view name) {
  return name.size() == 2 * sizeof(Key::bytes) + entry_suffix.size() && name.ends_with(entry_suffix) &&
         is_hex(name.substr(0, 2 * sizeof(Key::bytes)));
}

std::string name_of(const Key& key) { return to_string(key) + std::string(entry_suffix); }

}  // namespace

Cache::Cache(std::string directory, uint64_t limit_bytes)
    : directory_(std::move(directory)), limit_bytes_(limit_bytes) {}

std::string Cache::file_of(const Key& key) const { return fmt::format("{}/{}", directory_, name_of(key)); }

std::optional<CacheEntry> Cache::load(const Key& key) {
  if (directory_.empty()) return std::nullopt;
  const TrustedDirectory directory(directory_);
  if (!directory) return std::nullopt;
  const RegularFile file(directory.get(), name_of(key), O_NOFOLLOW);
  if (file.absent()) return std::nullopt;
  const std::string problem = file ? distrust(file.status()) : file.problem();
  if (!problem.empty()) {
    const std::lock_guard lock(mutex_);
    ignored_ = fmt::format("{}: {}", file_of(key), problem);
    return std::nullopt;
  }

  Header header{};
  if (!file.read(&header, sizeof header, 0)) return std::nullopt;
  const bool header_sound = std::memcmp(header.magic, magic, sizeof magic) == 0 && header.version == format_version &&
                            header.header_hash == hash_of(header) && std::ranges::equal(key.bytes, header.key);
  // Before anything is allocated: whoever wrote the header may claim any size, and a file of holes has it.
  if (!header_sound || header.payload_bytes > largest_cubin_bytes ||
      sizeof header + header.payload_bytes != file.size())
    return std::nullopt;
  std::string cubin(header.payload_bytes, '\0');
  if (!file.read(cubin.data(), cubin.size(), sizeof header)) return std::nullopt;
  if (XXH3_64bits(cubin.data(), cubin.size()) != header.payload_hash) return std::nullopt;

  // The time of last use, by which entries leave; a read-only cache keeps its times.
  if (std::time(nullptr) - file.status().st_mtime > refresh_seconds) futimens(file.get(), nullptr);
  return CacheEntry{std::move(cubin), report_of(header)};
}

void Cache::save(const Key& key, std::string_view cubin, const BuildReport& report) {
  if (directory_.empty()) return;
  const TrustedDirectory directory(directory_, TrustedDirectory::Missing::is_made);
  std::string problem = directory.problem();
  if (directory) {
    const Header header = header_for(key, cubin, report);
    const std::string_view header_bytes(reinterpret_cast<const char*>(&header), sizeof header);
    problem = replace_file(directory.get(), name_of(key), 0600, {header_bytes, cubin});
    if (problem.empty())
      trim(directory.get(), name_of(key));
    else
      problem = fmt::format("{}: {}", file_of(key), problem);
  }
  const std::lock_guard lock(mutex_);
  not_saved_ = std::move(problem);
}

std::string Cache::troubles() const {
  if (directory_.empty()) return {};
  const TrustedDirectory directory(directory_);
  const std::lock_guard lock(mutex_);
  std::vector<std::string> list;
  if (!directory && !directory.absent())
    list.push_back(fmt::format("not used: {}", directory.problem()));
  else if (!not_saved_.empty())
    list.push_back(fmt::format("not writable: {}", not_saved_));
  if (!ignored_.empty()) list.push_back(fmt::format("ignored {}", ignored_));
  return fmt::format("{}", fmt::join(list, "; "));
}

std::string Cache::describe() const {
  if (directory_.empty()) return "none, since none of ATTUNE_CACHE_DIR, XDG_CACHE_HOME and HOME names a place for it";
  const std::string now = troubles();
  return fmt::format("{}, at most {} MB{}{}", directory_, limit_bytes_ >> 20, now.empty() ? "" : "; ", now);
}

// Another process may trim at the same time: a file that is gone already is no error. Whatever other programs keep in
// the directory is left alone.
void Cache::trim(int directory, const std::string& keep) const {
  struct Entry {
    std::string name;
    uint64_t bytes;
    timespec used;
  };
  std::vector<Entry> entries;
  uint64_t total = 0;
  const time_t now = std::time(nullptr);
  const int listed = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* list = listed < 0 ? nullptr : fdopendir(listed);
  if (list == nullptr) {
    const Descriptor closed_here(listed);
    return;
  }
  while (const dirent* item = readdir(list)) {
    const std::string name = item->d_name;
    const std::optional<std::string_view> place = place_of_part(name);
    if (!is_entry(place.value_or(name))) continue;
    struct stat status{};
    if (fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode)) continue;
    if (place) {
      if (now - status.st_mtime > abandoned_seconds) unlinkat(directory, name.c_str(), 0);
      continue;
    }
    total += static_cast<uint64_t>(status.st_size);
    if (name != keep) entries.push_back({name, static_cast<uint64_t>(status.st_size), status.st_mtim});
  }
  closedir(list);

  std::ranges::sort(entries, [](const Entry& a, const Entry& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  for (const Entry& entry : entries) {
    if (total <= limit_bytes_) break;
    unlinkat(directory, entry.name.c_str(), 0);
    total -= entry.bytes;
  }
}

std::string default_cache_directory() {
  if (const std::string own = environment("ATTUNE_CACHE_DIR"); !own.empty()) return absolute(own);
  // By the XDG specification a relative path counts as none.
  if (const std::string user = environment("XDG_CACHE_HOME"); user.starts_with('/')) return user + "/attune";
  if (const std::string home = environment("HOME"); home.starts_with('/')) return home + "/.cache/attune";
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
