#include "jit/pack.hpp"

#include <fcntl.h>
#include <xxhash.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>

#include "core/error.hpp"
#include "jit/cubin.hpp"
#include "jit/files.hpp"

namespace attune::jit {
namespace {

constexpr char magic[8] = {'A', 'T', 'N', 'P', 'A', 'C', 'K', '1'};
constexpr int compression_level = 19;
constexpr uint64_t largest_pack_bytes = uint64_t{256} << 20;

struct Header {
  char magic[8];
  char arch[16];
  char compiler_version[16];
  uint64_t entries;
  uint64_t names_bytes;
  uint64_t file_bytes;
  uint64_t index_hash;   // of index and names
  uint64_t header_hash;  // of everything above
};

}  // namespace

struct PackIndex {
  uint8_t key[16];
  uint64_t offset;  // in the file
  uint32_t compressed_bytes;
  uint32_t cubin_bytes;
  uint64_t cubin_hash;
  uint32_t name_offset;  // among the names
  uint32_t name_bytes;
};

std::string pack_file_name(const std::string& arch) { return fmt::format("attune-{}.pack", arch); }

void write_pack(const std::string& file, const std::string& arch, const std::string& compiler_version,
                const std::map<Key, PackEntry>& entries) {
  Header header{};
  if (arch.size() >= sizeof header.arch || compiler_version.size() >= sizeof header.compiler_version)
    fail(ATTUNE_INTERNAL_ERROR, "pack {}: architecture or compiler version too long", file);
  std::vector<PackIndex> index;
  std::string names, data;
  for (const auto& [key, entry] : entries) {
    std::string compressed(ZSTD_compressBound(entry.cubin.size()), '\0');
    const size_t bytes =
        ZSTD_compress(compressed.data(), compressed.size(), entry.cubin.data(), entry.cubin.size(), compression_level);
    if (ZSTD_isError(bytes) != 0) fail(ATTUNE_INTERNAL_ERROR, "pack {}: {}", file, ZSTD_getErrorName(bytes));
    PackIndex item{};
    std::ranges::copy(key.bytes, item.key);
    item.offset = data.size();
    item.compressed_bytes = static_cast<uint32_t>(bytes);
    item.cubin_bytes = static_cast<uint32_t>(entry.cubin.size());
    item.cubin_hash = XXH3_64bits(entry.cubin.data(), entry.cubin.size());
    item.name_offset = static_cast<uint32_t>(names.size());
    item.name_bytes = static_cast<uint32_t>(entry.name.size());
    index.push_back(item);
    names += entry.name;
    data.append(compressed, 0, bytes);
  }
  const size_t data_offset = sizeof header + index.size() * sizeof(PackIndex) + names.size();
  for (PackIndex& item : index) item.offset += data_offset;
  std::string front(reinterpret_cast<const char*>(index.data()), index.size() * sizeof(PackIndex));
  front += names;

  std::memcpy(header.magic, magic, sizeof magic);
  std::memcpy(header.arch, arch.data(), arch.size());
  std::memcpy(header.compiler_version, compiler_version.data(), compiler_version.size());
  header.entries = index.size();
  header.names_bytes = names.size();
  header.file_bytes = data_offset + data.size();
  header.index_hash = XXH3_64bits(front.data(), front.size());
  header.header_hash = XXH3_64bits(&header, offsetof(Header, header_hash));

  const std::string_view header_bytes(reinterpret_cast<const char*>(&header), sizeof header);
  const std::string problem = replace_file(AT_FDCWD, file, 0644, {header_bytes, front, data});
  if (!problem.empty()) fail(ATTUNE_INTERNAL_ERROR, "cannot write {}: {}", file, problem);
}

Pack::Pack(const std::string& path) {
  const RegularFile file(AT_FDCWD, path);
  if (!file) fail(ATTUNE_COMPILE_ERROR, "pack {}: {}", path, file.problem());
  if (file.size() < sizeof(Header)) fail(ATTUNE_COMPILE_ERROR, "pack {}: too short", path);
  if (file.size() > largest_pack_bytes)
    fail(ATTUNE_COMPILE_ERROR, "pack {}: {} MB; at most {} MB are read", path, file.size() >> 20,
         largest_pack_bytes >> 20);
  bytes_.resize(file.size());
  if (!file.read(bytes_.data(), bytes_.size(), 0)) fail(ATTUNE_COMPILE_ERROR, "pack {}: not readable", path);

  Header header{};
  std::memcpy(&header, bytes_.data(), sizeof header);
  if (std::memcmp(header.magic, magic, sizeof magic) != 0)
    fail(ATTUNE_COMPILE_ERROR, "pack {}: not a pack of this version", path);
  const size_t room = bytes_.size() - sizeof header;
  bool sound = header.header_hash == XXH3_64bits(&header, offsetof(Header, header_hash)) &&
               header.file_bytes == bytes_.size() && header.entries <= room / sizeof(PackIndex) &&
               header.names_bytes <= room - header.entries * sizeof(PackIndex) &&
               header.index_hash ==
                   XXH3_64bits(bytes_.data() + sizeof header, header.entries * sizeof(PackIndex) + header.names_bytes);
  if (sound)
    sound = std::all_of(index(), index() + size(), [&](const PackIndex& item) {
      return item.offset <= bytes_.size() && item.compressed_bytes <= bytes_.size() - item.offset &&
             item.cubin_bytes <= largest_cubin_bytes && item.name_offset <= header.names_bytes &&
             item.name_bytes <= header.names_bytes - item.name_offset;
    });
  if (!sound) fail(ATTUNE_COMPILE_ERROR, "pack {}: damaged", path);
  arch_ = {header.arch, strnlen(header.arch, sizeof header.arch)};
  compiler_version_ = {header.compiler_version, strnlen(header.compiler_version, sizeof header.compiler_version)};
}

const PackIndex* Pack::index() const { return reinterpret_cast<const PackIndex*>(bytes_.data() + sizeof(Header)); }

size_t Pack::size() const { return reinterpret_cast<const Header*>(bytes_.data())->entries; }

std::vector<std::string> Pack::names() const {
  const char* names = reinterpret_cast<const char*>(index() + size());
  std::vector<std::string> list;
  for (const PackIndex* item = index(); item != index() + size(); ++item)
    list.emplace_back(names + item->name_offset, item->name_bytes);
  return list;
}

std::optional<std::string> Pack::load(const Key& key) const {
  const PackIndex* end = index() + size();
  const PackIndex* item = std::lower_bound(index(), end, key, [](const PackIndex& entry, const Key& wanted) {
    return std::memcmp(entry.key, wanted.bytes.data(), sizeof entry.key) < 0;
  });
  if (item == end || std::memcmp(item->key, key.bytes.data(), sizeof item->key) != 0) return std::nullopt;
  const char* compressed = bytes_.data() + item->offset;
  if (ZSTD_getFrameContentSize(compressed, item->compressed_bytes) != item->cubin_bytes) return std::nullopt;
  std::string cubin(item->cubin_bytes, '\0');
  const size_t bytes = ZSTD_decompress(cubin.data(), cubin.size(), compressed, item->compressed_bytes);
  if (bytes != cubin.size() || XXH3_64bits(cubin.data(), cubin.size()) != item->cubin_hash) return std::nullopt;
  return cubin;
}

}  // namespace attune::jit
