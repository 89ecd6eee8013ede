// What the build embeds into the library (cmake/embed_sources.cmake): device sources, and the compiler they were
// measured with.
#pragma once

namespace attune::jit {

struct EmbeddedFile {
  const char* path;  // relative to the repository, "kernels/any/fwd.cuh"; nullptr closes the table
  const char* text;
};

extern const EmbeddedFile embedded_files[];
extern const char measured_nvrtc_version[];  // kernels/compiler.toml

}  // namespace attune::jit
