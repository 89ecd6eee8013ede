// The store gives the cubin of a device unit: from memory, from a pack, from the user's cache, or by compiling it now.
//
// A kernel is addressed by content, so nothing here can be out of date: another source, option or compiler is another
// key. Thread-safe; of several threads that ask for one kernel, one makes it and the others wait.
#pragma once

#include <climits>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "jit/cache.hpp"
#include "jit/compile.hpp"
#include "jit/cubin.hpp"
#include "jit/pack.hpp"
#include "jit/source.hpp"
#include "jit/unit.hpp"

namespace attune::jit {

enum class Origin { pack, cache, compiled };
std::string_view name_of(Origin origin);

struct Built {
  std::string cubin;
  CubinInfo info;
  BuildReport report;  // as of its compilation; empty if it came from a pack
  Key key;
  Origin origin = Origin::compiled;
  std::string compiler_version;
  bool measured = false;       // made by the compiler of kernels/compiler.toml
  double compile_seconds = 0;  // 0 unless compiled now
  std::string cache_troubles;  // Cache::troubles() when it was compiled
};

struct StoreOptions {
  Sources sources;
  std::string cache_directory;
  uint64_t cache_bytes = 0;
  std::vector<std::string> pack_directories;
  bool compile = true;
  std::function<const Compiler&(int newest_major)> find_compiler;
};

// ATTUNE_SOURCE_DIR, ATTUNE_CACHE_DIR, ATTUNE_CACHE_MB, ATTUNE_PACK_DIR, ATTUNE_JIT=0, ATTUNE_NVRTC.
StoreOptions store_options_from_environment();

class Store {
 public:
  explicit Store(StoreOptions options);

  // `arch` as NVRTC spells it: "sm_90a". `newest_major`: the CUDA version up to which the driver loads cubins.
  // Throws ATTUNE_NOT_BUILT if compiling is switched off, ATTUNE_COMPILE_ERROR if it fails, or if a compiler other than
  // the measured one makes a kernel that spills or serialises.
  std::shared_ptr<const Built> get(const DeviceUnit& unit, const std::string& arch, int newest_major = INT_MAX);

  // What get() has given before, or nullptr. Does not wait.
  std::shared_ptr<const Built> find(const DeviceUnit& unit, const std::string& arch, int newest_major = INT_MAX);

  // Where sources, packs, cache and compiler are, or why they are not: one line each.
  std::string describe(int newest_major = INT_MAX);

 private:
  using Result = std::shared_ptr<const Built>;

  Key content_of(const std::string& unit_text, const std::string& arch);

  Result make(const DeviceUnit& unit, const std::string& arch, const Key& content, int newest_major);
  Result compile(const DeviceUnit& unit, const std::string& arch, const Key& content, const Compiler& compiler);
  const std::vector<Pack>& packs_for(const std::string& arch);

  StoreOptions options_;
  Cache cache_;
  std::mutex mutex_;
  std::map<std::pair<Key, int>, std::shared_future<Result>> made_;
  std::map<std::pair<std::string, std::string>, Key>
      contents_;                                    // by unit and architecture; of sources that never change
  std::map<std::string, std::vector<Pack>> packs_;  // by architecture
  std::vector<std::string> complaints_;             // of packs that could not be used
};

}  // namespace attune::jit
