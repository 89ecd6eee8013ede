// A tiny kernel and a scratch directory for the tests of the store: compiles in some 20 ms.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/error.hpp"
#include "jit/nvrtc.hpp"
#include "jit/store.hpp"
#include "jit/unit.hpp"

namespace attune::jit {

// A directory of its own, removed at the end.
class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "attune-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path = name;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::string operator/(const std::string& name) const { return path + "/" + name; }
  std::string path;
};

inline void write_text(const std::string& file, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(file).parent_path());
  std::ofstream(file, std::ios::binary) << text;
}

inline constexpr char toy_text[] = R"(#pragma once
#include "kernels/common/types.cuh"
namespace attune::device::toy {
struct Variant { Dtype dtype = Dtype::f16; int number = 0; };
struct Config { int factor = 1; };
struct Params { int32_t* out; int64_t count; };
#ifdef __CUDACC_RTC__
template <Variant variant, Config config>
__device__ void run(const Params& params) { params.out[0] = variant.number * config.factor; }
#endif
}  // namespace attune::device::toy
)";

// A checkout with the toy kernel and nothing else.
inline void write_toy(const std::string& checkout) {
  write_text(checkout + "/kernels/test/toy.cuh", toy_text);
  write_text(checkout + "/kernels/common/types.cuh", Sources().read("kernels/common/types.cuh"));
}

inline DeviceUnit toy_unit(int number) {
  DeviceUnit unit;
  unit.name = "test/toy";
  unit.file = "kernels/test/toy.cuh";
  unit.scope = "attune::device::toy";
  unit.variant = Initializer().add("dtype", device::Dtype::bf16).add("number", number).text();
  unit.config = Initializer().add("factor", 3).text();
  unit.layout = {{"sizeof(Params)", 16}, {"__INTADDR__(&((Params*)0)->count)", 8}};
  unit.params_bytes = 16;
  unit.threads = 32;
  return unit;
}

// "" if NVRTC is here, else why it is not.
inline std::string nvrtc_absence() {
  try {
    find_nvrtc(INT_MAX);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

#define SKIP_WITHOUT_NVRTC() \
  if (const std::string absence = ::attune::jit::nvrtc_absence(); !absence.empty()) GTEST_SKIP() << absence

inline StoreOptions toy_options(const Scratch& scratch) {
  write_toy(scratch / "source");
  StoreOptions options;
  options.sources = Sources(scratch / "source");
  options.cache_directory = scratch / "cache";
  options.cache_bytes = uint64_t{64} << 20;
  options.find_compiler = find_nvrtc;
  return options;
}

}  // namespace attune::jit
