// NVRTC, NVIDIA's run-time compiler, loaded by dlopen where one is found. Nothing here needs a GPU or CUDA headers.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "jit/compile.hpp"

namespace attune::jit {

struct NvrtcSearch {
  std::vector<std::string> found;   // library files, in order of preference, each once
  std::vector<std::string> looked;  // places, for the message when nothing was found
};

// ATTUNE_NVRTC (a file or directory) alone if set; otherwise LD_LIBRARY_PATH, CUDA toolkits, the system's libraries,
// the nvidia packages of Python installations, and the folder nvrtc beside this library. `variable` is getenv, or a
// test's.
NvrtcSearch search_nvrtc(const std::function<std::string(const char*)>& variable);

// The NVRTC to use: the measured version if it is among those found, else the first that works. Only versions up to
// `newest_major` count, since a driver loads no cubins of a newer major version of CUDA than its own. Found once per
// process. Throws ATTUNE_COMPILE_ERROR that says where it looked.
const Compiler& find_nvrtc(int newest_major);

}  // namespace attune::jit
