// The user's cache of cubins: one directory, one file per key.
//
// Many processes may fill it at once without a lock: an entry is written beside its place, flushed and renamed, so a
// reader sees all of it or none, and two writers of one key write the same. What a killed process left is swept up
// later. Every entry carries a checksum; one that fails it is not returned. Nothing that goes wrong here fails a call:
// the kernel has been compiled already.
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

  std::optional<CacheEntry> load(const Key& key) const;
  void save(const Key& key, std::string_view cubin, const BuildReport& report);

  const std::string& directory() const { return directory_; }
  std::string complaint() const;  // why the last save failed; "" if it did not
  std::string file_of(const Key& key) const;

 private:
  void trim(const std::string& keep) const;

  std::string directory_;
  uint64_t limit_bytes_;
  mutable std::mutex mutex_;
  std::string complaint_;
};

// ATTUNE_CACHE_DIR, else XDG_CACHE_HOME/attune, else ~/.cache/attune, else "".
std::string default_cache_directory();
// ATTUNE_CACHE_MB, 512 if it is not set.
uint64_t default_cache_bytes();

}  // namespace attune::jit
