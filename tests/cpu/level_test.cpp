// The instruction-set levels: how one is chosen, and that none leaks its code into the rest of the library.
#include <elf.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "cpu/isa.hpp"
#include "dispatch/context.hpp"
#include "dispatch/select.hpp"
#include "tests/cpu/support.hpp"
#include "tests/support/paths.hpp"

namespace attune::cpu {
namespace {

// Global and weak symbols that an object file defines.
std::vector<std::string> exported_symbols(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> names;
  if (bytes.size() < sizeof(Elf64_Ehdr)) return names;
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(bytes.data());
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(bytes.data() + header->e_shoff);
  for (int s = 0; s < header->e_shnum; ++s) {
    if (sections[s].sh_type != SHT_SYMTAB) continue;
    const auto* symbols = reinterpret_cast<const Elf64_Sym*>(bytes.data() + sections[s].sh_offset);
    const char* strings = bytes.data() + sections[sections[s].sh_link].sh_offset;
    for (size_t i = 0; i < sections[s].sh_size / sizeof(Elf64_Sym); ++i)
      if (symbols[i].st_shndx != SHN_UNDEF && ELF64_ST_BIND(symbols[i].st_info) != STB_LOCAL)
        names.emplace_back(strings + symbols[i].st_name);
  }
  return names;
}

// A weak function compiled with AVX-512 may be the copy the linker keeps for everyone.
TEST(CpuLevels, ExportNothingButTheirTables) {
  REQUIRE_COMPLETE_BUILD();
  const std::string folder = test::build() + "/CMakeFiles/attune_objects.dir/src/cpu/level/";
  for (const Level* level : levels()) {
    const std::string name = level->name;
    const std::vector<std::string> symbols = exported_symbols(folder + name + ".cpp.o");
    ASSERT_FALSE(symbols.empty()) << folder + name << ".cpp.o cannot be read";
    for (const std::string& symbol : symbols) {
      if (symbol.find("asan") != std::string::npos || symbol.find("sanitizer") != std::string::npos) continue;
      EXPECT_NE(symbol.find(name + "_level"), std::string::npos) << name << " exports " << symbol;
    }
  }
}

TEST(CpuLevels, TheBestOneIsChosenAndTheEnvironmentCapsIt) {
  const test::LevelCap none(nullptr);
  attune_options options{};
  const Context context(options);
  const Problem problem = parse_problem("fwd b1 h8/8 q512 k512 d64 f16");
  EXPECT_EQ(select(problem, context, "").chosen->name(), std::string("cpu/") + best_level().name);
  for (const Level* cap : levels()) {
    if (!refusal(*cap).empty()) continue;
    const test::LevelCap environment(cap->name);
    EXPECT_STREQ(best_level().name, cap->name);
    EXPECT_EQ(select(problem, context, "").chosen->name(), std::string("cpu/") + cap->name);
  }
}

TEST(CpuLevels, AnUnknownNameInTheEnvironmentIsAnError) {
  const test::LevelCap environment("sse9");
  try {
    best_level();
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.status, ATTUNE_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error.what()).find("'sse9'; it must be one of portable"), std::string::npos) << error.what();
  }
}

TEST(CpuLevels, ReferencesAreReachedByForceOnly) {
  for (const char* name : {"cpu/reference", "cpu/unfused"}) {
    ASSERT_NE(find_kernel(name), nullptr);
    EXPECT_FALSE(find_kernel(name)->selectable());
  }
}

}  // namespace
}  // namespace attune::cpu
