#include "jit/nvrtc.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <set>

#include "core/error.hpp"
#include "jit/cubin.hpp"
#include "jit/embedded.hpp"
#include "jit/paths.hpp"

namespace attune::jit {
namespace {

// Our own declarations of nvrtc.h.
using Result = int;
using Program = void*;
constexpr Result success = 0, invalid_option = 5;

struct Functions {
  Result (*nvrtcVersion)(int*, int*);
  const char* (*nvrtcGetErrorString)(Result);
  Result (*nvrtcCreateProgram)(Program*, const char* text, const char* name, int headers,
                               const char* const* header_texts, const char* const* header_names);
  Result (*nvrtcDestroyProgram)(Program*);
  Result (*nvrtcCompileProgram)(Program, int options, const char* const*);
  Result (*nvrtcGetProgramLogSize)(Program, size_t*);
  Result (*nvrtcGetProgramLog)(Program, char*);
  Result (*nvrtcGetCUBINSize)(Program, size_t*);
  Result (*nvrtcGetCUBIN)(Program, char*);
};

class Nvrtc final : public Compiler {
 public:
  // Throws if the file is no NVRTC that works.
  explicit Nvrtc(std::string path) : path_(std::move(path)) {
    void* library = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) fail(ATTUNE_COMPILE_ERROR, "{}", dlerror());
    const auto load = [&](auto& function, const char* name) {
      void* symbol = dlsym(library, name);
      if (symbol == nullptr) fail(ATTUNE_COMPILE_ERROR, "{} has no {}", path_, name);
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
    };
    load(f_.nvrtcVersion, "nvrtcVersion");
    load(f_.nvrtcGetErrorString, "nvrtcGetErrorString");
    load(f_.nvrtcCreateProgram, "nvrtcCreateProgram");
    load(f_.nvrtcDestroyProgram, "nvrtcDestroyProgram");
    load(f_.nvrtcCompileProgram, "nvrtcCompileProgram");
    load(f_.nvrtcGetProgramLogSize, "nvrtcGetProgramLogSize");
    load(f_.nvrtcGetProgramLog, "nvrtcGetProgramLog");
    load(f_.nvrtcGetCUBINSize, "nvrtcGetCUBINSize");
    load(f_.nvrtcGetCUBIN, "nvrtcGetCUBIN");

    int major = 0, minor = 0;
    check(f_.nvrtcVersion(&major, &minor), "nvrtcVersion");
    // The library tells only its major and minor version; what it compiles carries the whole.
    const std::string empty = "extern \"C\" __global__ void attn_kernel() {}";
    version_ = read_cubin(compile(empty, {}, "sm_80").cubin).compiler_version;
    if (version_.empty()) version_ = fmt::format("{}.{}", major, minor);
  }

  const std::string& version() const override { return version_; }
  std::string where() const override { return path_; }

  Compiled compile(const std::string& text, const std::vector<SourceFile>& headers,
                   const std::string& arch) const override {
    return compile_with("attn_kernel.cu", text, headers, compile_options(), arch);
  }

  Compiled compile_program(const std::string& name, const std::string& text, const std::vector<std::string>& options,
                           const std::string& arch) const override {
    std::vector<std::string> all = options;
    // Without --minimal, which leaves out what CUDA's headers may use.
    std::ranges::copy_if(compile_options(), std::back_inserter(all),
                         [](const std::string& option) { return option != "--minimal"; });
    return compile_with(name, text, {}, std::move(all), arch);
  }

 private:
  Compiled compile_with(const std::string& name, const std::string& text, const std::vector<SourceFile>& headers,
                        std::vector<std::string> options, const std::string& arch) const {
    const auto begin = std::chrono::steady_clock::now();
    options.insert(options.begin(), "--gpu-architecture=" + arch);
    Compiled compiled;
    std::string log;
    Result result = attempt(name, text, headers, options, compiled.cubin, log);
    if (result == invalid_option) {
      // Versions before 12.9 do not know these two; they change no code.
      std::erase(options, "--minimal");
      std::erase(options, "--no-cache");
      result = attempt(name, text, headers, options, compiled.cubin, log);
    }
    if (result != success)
      fail(ATTUNE_COMPILE_ERROR, "NVRTC {} ({}) for {}: {}\n{}", version_, path_, arch, f_.nvrtcGetErrorString(result),
           log);
    compiled.report = read_log(log);
    compiled.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return compiled;
  }

  void check(Result result, const char* what) const {
    if (result != success) fail(ATTUNE_COMPILE_ERROR, "{} of {}: {}", what, path_, f_.nvrtcGetErrorString(result));
  }

  Result attempt(const std::string& name, const std::string& text, const std::vector<SourceFile>& headers,
                 const std::vector<std::string>& options, std::string& cubin, std::string& log) const {
    std::vector<const char*> texts, names, words;
    for (const SourceFile& header : headers) {
      texts.push_back(header.text.c_str());
      names.push_back(header.path.c_str());
    }
    for (const std::string& option : options) words.push_back(option.c_str());

    Program program = nullptr;
    check(f_.nvrtcCreateProgram(&program, text.c_str(), name.c_str(), static_cast<int>(headers.size()), texts.data(),
                                names.data()),
          "nvrtcCreateProgram");
    const std::unique_ptr<Program, Result (*)(Program*)> owner(&program, f_.nvrtcDestroyProgram);
    const Result result = f_.nvrtcCompileProgram(program, static_cast<int>(words.size()), words.data());
    size_t size = 0;
    check(f_.nvrtcGetProgramLogSize(program, &size), "nvrtcGetProgramLogSize");
    log.resize(size);
    check(f_.nvrtcGetProgramLog(program, log.data()), "nvrtcGetProgramLog");
    while (log.ends_with('\0')) log.pop_back();
    if (result != success) return result;
    check(f_.nvrtcGetCUBINSize(program, &size), "nvrtcGetCUBINSize");
    cubin.resize(size);
    check(f_.nvrtcGetCUBIN(program, cubin.data()), "nvrtcGetCUBIN");
    return result;
  }

  std::string path_;
  std::string version_;
  Functions f_{};
};

struct Opened {
  std::vector<std::unique_ptr<const Nvrtc>> compilers;  // never closed: threads may be inside
  std::vector<std::string> failures;
  NvrtcSearch search;
};

// Opens what was found until the measured version turns up.
Opened open_all() {
  Opened opened;
  opened.search = search_nvrtc(environment);
  for (const std::string& path : opened.search.found) {
    try {
      opened.compilers.push_back(std::make_unique<const Nvrtc>(path));
    } catch (const Error& error) {
      opened.failures.emplace_back(error.what());
      continue;
    }
    if (opened.compilers.back()->measured()) break;
  }
  return opened;
}

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, ", ")); }

void add_libraries(const std::string& directory, NvrtcSearch& search, std::set<std::string>& seen) {
  for (const std::string& file : matches(directory + "/libnvrtc.so*"))
    if (seen.insert(resolved(file)).second) search.found.push_back(file);
}

}  // namespace

NvrtcSearch search_nvrtc(const std::function<std::string(const char*)>& variable) {
  NvrtcSearch search;
  std::set<std::string> seen;
  if (const std::string forced = variable("ATTUNE_NVRTC"); !forced.empty()) {
    search.looked = {"ATTUNE_NVRTC=" + forced};
    if (is_directory(forced))
      add_libraries(forced, search, seen);
    else if (exists(forced))
      search.found = {forced};
    return search;
  }

  const auto look = [&](const std::string& pattern) {
    search.looked.push_back(pattern);
    for (const std::string& directory : matches(pattern)) add_libraries(directory, search, seen);
  };
  for (const std::string& directory : split(variable("LD_LIBRARY_PATH"), ':')) look(directory);
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
    if (const std::string toolkit = variable(name); !toolkit.empty()) {
      look(toolkit + "/lib64");
      look(toolkit + "/targets/*/lib");
    }
  look("/usr/local/cuda*/lib64");
  look("/usr/lib/*-linux-gnu");
  look("/usr/lib64");
  for (const std::string& packages : python_package_folders(variable)) look(packages + "/nvidia/*/lib");
  const std::string own = library_directory();
  look(own + "/nvrtc");
  look(own + "/../nvrtc");
  return search;
}

const Compiler& find_nvrtc(int newest_major) {
  static std::mutex mutex;
  static std::unique_ptr<const Opened> opened;
  const std::lock_guard lock(mutex);
  if (opened == nullptr) opened = std::make_unique<const Opened>(open_all());

  const Nvrtc* chosen = nullptr;
  for (const auto& compiler : opened->compilers)
    if (major_of(compiler->version()) <= newest_major && (chosen == nullptr || compiler->measured()))
      chosen = compiler.get();
  if (chosen != nullptr) return *chosen;

  std::vector<std::string> reasons = opened->failures;
  for (const auto& compiler : opened->compilers)
    reasons.push_back(fmt::format("{} is version {}, and this driver loads kernels of CUDA {} at most",
                                  compiler->where(), compiler->version(), newest_major));
  const std::string places = joined(opened->search.looked);
  if (opened->compilers.empty()) opened = nullptr;  // look again next time: it may have been installed meanwhile
  fail(ATTUNE_COMPILE_ERROR,
       "no NVRTC to compile kernels with: {}. Looked for libnvrtc.so* in {}. Set ATTUNE_NVRTC to the file or its "
       "folder, "
       "or install it with: pip install nvidia-cuda-nvrtc=={}",
       reasons.empty() ? "none found" : joined(reasons), places, measured_nvrtc_version);
}

}  // namespace attune::jit
