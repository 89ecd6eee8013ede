// A pack is a cache frozen into one file per architecture: the kernels that are promised, compiled beforehand. With it
// no compiler is needed. Each cubin is compressed on its own (zstd), so that loading one does not unpack the others.
// The largest pack has 2 MB and is read as a whole; what becomes of the file afterwards no longer matters.
//
//   header | index, sorted by key | names | compressed cubins
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "jit/key.hpp"

namespace attune::jit {

struct PackIndex;  // where in the file a cubin lies; pack.cpp

struct PackEntry {
  std::string name;  // label_of(unit), for people
  std::string cubin;
};

// Replaces the file atomically. Throws ATTUNE_INTERNAL_ERROR if it cannot be written.
void write_pack(const std::string& file, const std::string& arch, const std::string& compiler_version,
                const std::map<Key, PackEntry>& entries);

class Pack {
 public:
  // Throws ATTUNE_COMPILE_ERROR if the file is not a sound pack.
  explicit Pack(const std::string& path);

  const std::string& arch() const { return arch_; }
  const std::string& compiler_version() const { return compiler_version_; }
  size_t size() const;
  std::vector<std::string> names() const;

  // nullopt if it is not there, or if its checksum says that it is damaged.
  std::optional<std::string> load(const Key& key) const;

 private:
  const PackIndex* index() const;

  std::string bytes_;  // the whole file
  std::string arch_, compiler_version_;
};

// "attune-sm_90a.pack"
std::string pack_file_name(const std::string& arch);

}  // namespace attune::jit
