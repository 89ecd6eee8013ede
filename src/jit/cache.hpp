// The user's cache of cubins: one directory, one file per key.
//
// Many processes may fill it at once without a lock: an entry is written beside its place, flushed and renamed, so a
// reader sees all of it or none, and two writers of one key write the same. What a killed process left is swept up
// later. Every entry carries a checksum; one that fails it is not returned. A checksum tells damage and no forgery, so
// the directory and its entries must be out of others' reach: see distrust() in files.hpp. Nothing that goes wrong here
// fails a call: the kernel has been compiled already.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "jit/compile.hpp"
#include "jit/key.hpp"

namespace attune::jit {

struct CacheEntry {
  std::string cubin;
  BuildReport report;  // without the lines of warnings
};

class Cache {
 public:
  // "" switches the cache off. The least recently used entries go when it has more than `limit_bytes`.
  Cache(std::string directory, uint64_t limit_bytes);

  std::optional<CacheEntry> load(const Key& key);
  void save(const Key& key, std::string_view cubin, const BuildReport& report);

  const std::string& directory() const { return directory_; }
  std::string file_of(const Key& key) const;
  std::string describe() const;  // where it is, its limit, and troubles()
  // Why the directory is not used, why the last save failed, which entry was ignored last; or "".
  std::string troubles() const;

 private:
  void trim(int directory, const std::string& keep) const;

  std::string directory_;
  uint64_t limit_bytes_;
  mutable std::mutex mutex_;
  std::string not_saved_, ignored_;
};

// ATTUNE_CACHE_DIR, else XDG_CACHE_HOME/attune, else HOME/.cache/attune, else "". Always an absolute path.
std::string default_cache_directory();
// ATTUNE_CACHE_MB, 512 if it is not set.
uint64_t default_cache_bytes();

}  // namespace attune::jit
