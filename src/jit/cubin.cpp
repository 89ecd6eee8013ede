#include "jit/cubin.hpp"

#include <elf.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <vector>

#include "core/error.hpp"

namespace attune::jit {
namespace {

constexpr Elf64_Half machine_cuda = 190;
constexpr int system_smem_bytes = 1024;

// Attributes of .nv.info; a record is: format byte, attribute byte, 16-bit size, then `size` bytes for format 4.
enum : uint8_t { format_sized = 4 };
enum : uint8_t {
  attribute_max_threads = 0x05,
  attribute_frame_size = 0x11,
  attribute_param_info = 0x17,
  attribute_registers = 0x2f,
};

struct Section {
  std::string_view name;
  Elf64_Shdr header;
  std::string_view data;  // empty for NOBITS
};

class Elf {
 public:
  explicit Elf(std::string_view bytes) : bytes_(bytes), header_(at<Elf64_Ehdr>(0)) {
    if (std::memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0 || header_.e_ident[EI_CLASS] != ELFCLASS64)
      damaged("it is no 64-bit ELF file");
    if (header_.e_machine != machine_cuda) damaged("it is not for NVIDIA GPUs");
    if (header_.e_shentsize != sizeof(Elf64_Shdr)) damaged("its section headers have another size");
    for (int i = 0; i < header_.e_shnum; ++i) {
      Section section{{}, at<Elf64_Shdr>(header_.e_shoff + i * sizeof(Elf64_Shdr)), {}};
      if (section.header.sh_type != SHT_NOBITS) section.data = slice(section.header.sh_offset, section.header.sh_size);
      sections_.push_back(section);
    }
    slice(header_.e_phoff, uint64_t{header_.e_phnum} * header_.e_phentsize);
    if (header_.e_shstrndx >= sections_.size()) damaged("its section names are missing");
    const std::string_view names = sections_[header_.e_shstrndx].data;
    for (Section& section : sections_) section.name = text_at(names, section.header.sh_name);
  }

  const std::vector<Section>& sections() const { return sections_; }
  const Elf64_Ehdr& header() const { return header_; }

  const Section* find(std::string_view name) const {
    for (const Section& section : sections_)
      if (section.name == name) return &section;
    return nullptr;
  }

  [[noreturn]] static void damaged(const char* why) { fail(ATTUNE_COMPILE_ERROR, "not a usable cubin: {}", why); }

  static std::string_view text_at(std::string_view table, size_t offset) {
    if (offset >= table.size()) damaged("a name lies outside its table");
    const size_t end = table.find('\0', offset);
    if (end == std::string_view::npos) damaged("a name has no end");
    return table.substr(offset, end - offset);
  }

 private:
  std::string_view slice(uint64_t offset, uint64_t size) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset) damaged("a section lies outside the file");
    return bytes_.substr(offset, size);
  }

  template <typename T>
  T at(uint64_t offset) const {
    T value;
    const std::string_view bytes = slice(offset, sizeof value);
    std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }

  std::string_view bytes_;
  Elf64_Ehdr header_;
  std::vector<Section> sections_;
};

template <typename Visit>
void for_each_attribute(std::string_view info, Visit visit) {
  while (info.size() >= 4) {
    const auto format = static_cast<uint8_t>(info[0]), attribute = static_cast<uint8_t>(info[1]);
    uint16_t size = 0;  // of what follows, if anything does
    std::memcpy(&size, info.data() + 2, 2);
    std::string_view data;
    info.remove_prefix(4);
    if (format == format_sized) {
      if (size > info.size()) Elf::damaged("an attribute is cut off");
      data = info.substr(0, size);
      info.remove_prefix(size);
    }
    visit(attribute, data);
  }
}

int int_at(std::string_view data, size_t offset) {
  int32_t value = 0;
  if (offset + sizeof value > data.size()) Elf::damaged("an attribute is too short");
  std::memcpy(&value, data.data() + offset, sizeof value);
  return value;
}

// "13.0.88" from "Cuda compilation tools, release 13.0, V13.0.88".
std::string version_in(std::string_view note) {
  const size_t at = note.find(", V");
  if (at == std::string_view::npos) return {};
  const std::string_view rest = note.substr(at + 3);
  return std::string(rest.substr(0, rest.find_first_not_of("0123456789.")));
}

std::string hash_of_code(const Elf& elf, const CubinInfo& info) {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  const int32_t figures[] = {info.arch, info.registers, info.params_bytes, info.static_smem_bytes};
  XXH3_128bits_update(&state, figures, sizeof figures);
  for (const Section& section : elf.sections()) {
    const bool executed = section.name.starts_with(".text.") || section.name.starts_with(".nv.constant") ||
                          section.name.starts_with(".nv.global");
    if (!executed) continue;
    XXH3_128bits_update(&state, section.name.data(), section.name.size());
    XXH3_128bits_update(&state, section.data.data(), section.data.size());
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(&state);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

CubinInfo read_cubin(std::string_view bytes) {
  const Elf elf(bytes);
  CubinInfo info;
  // The architecture moved from the low byte to bits 8..15 with ELF version 8 of the ABI.
  const uint32_t flags = elf.header().e_flags;
  info.arch = static_cast<int>(elf.header().e_ident[EI_ABIVERSION] >= 8 ? (flags >> 8) & 0xffu : flags & 0xffu);

  constexpr std::string_view text_prefix = ".text.";
  for (const Section& section : elf.sections()) {
    if (!section.name.starts_with(text_prefix)) continue;
    const std::string_view function = section.name.substr(text_prefix.size());
    if (elf.find(fmt::format(".nv.constant0.{}", function)) == nullptr) continue;  // only kernels have parameters
    if (!info.kernel.empty()) Elf::damaged("it holds more than one kernel");
    info.kernel = function;
    info.code_bytes = static_cast<int>(section.data.size());
    info.registers = static_cast<int>(section.header.sh_info >> 24);
  }
  if (info.kernel.empty()) Elf::damaged("it holds no kernel");

  if (const Section* common = elf.find(".nv.info"))
    for_each_attribute(common->data, [&](uint8_t attribute, std::string_view data) {
      // Pairs (symbol, value), one for each function.
      if (attribute == attribute_registers) info.registers = std::max(info.registers, int_at(data, 4));
      if (attribute == attribute_frame_size) info.stack_bytes = std::max(info.stack_bytes, int_at(data, 4));
    });
  if (const Section* own = elf.find(fmt::format(".nv.info.{}", info.kernel)))
    for_each_attribute(own->data, [&](uint8_t attribute, std::string_view data) {
      // The one parameter's own size: the bank's also counts what aligns it.
      if (attribute == attribute_param_info) {
        info.params_bytes = static_cast<int>(static_cast<uint32_t>(int_at(data, 8)) >> 18);
        const size_t ordinal = static_cast<uint32_t>(int_at(data, 4)) & 0xffffu;
        if (info.param_sizes.size() <= ordinal) info.param_sizes.resize(ordinal + 1);
        info.param_sizes[ordinal] = info.params_bytes;
      }
      if (attribute == attribute_max_threads) info.max_threads = int_at(data, 0) * int_at(data, 4) * int_at(data, 8);
    });
  if (const Section* shared = elf.find(fmt::format(".nv.shared.{}", info.kernel)))
    info.static_smem_bytes = static_cast<int>(shared->header.sh_size);
  // From sm_90 on the section counts what the system reserves for itself in every block.
  if (elf.find(".nv.shared.reserved.0") != nullptr)
    info.static_smem_bytes = std::max(0, info.static_smem_bytes - system_smem_bytes);
  if (const Section* note = elf.find(".note.nv.tkinfo")) info.compiler_version = version_in(note->data);
  info.code_hash = hash_of_code(elf, info);
  return info;
}

}  // namespace attune::jit
