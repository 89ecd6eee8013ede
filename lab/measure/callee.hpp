// Something that can compute a problem and so can be measured: this library, another build of it, or a plug-in.
// These are reached through C functions, so that what is timed is what a user calls. The fourth is for sweeps: a kernel
// of this library in a configuration that it would not choose by itself.
#pragma once

#include <memory>
#include <string>

#include "attune/attune.h"
#include "attune/attune_contender.h"
#include "core/operation.hpp"
#include "lab/measure/contender.hpp"

namespace attune::lab {

class Callee {
 public:
  virtual ~Callee() = default;

  virtual std::string_view name() const = 0;
  virtual uint64_t workspace_bytes() const = 0;
  // On the CPU the call returns when it is done; on a GPU it is on the stream. Throws what the callee complains of.
  virtual void run(const Operands& operands, void* stream) = 0;
  virtual Facts facts() const { return {}; }
};

// A build of libattune by its functions.
struct Library {
  decltype(&attune_create) create = nullptr;
  decltype(&attune_destroy) destroy = nullptr;
  decltype(&attune_prepare) prepare = nullptr;
  decltype(&attune_workspace_bytes) workspace_bytes = nullptr;
  decltype(&attune_forward) forward = nullptr;
  decltype(&attune_merge) merge = nullptr;  // may be absent
  decltype(&attune_explain) explain = nullptr;
  // Of gradients; absent before ABI version 3.
  decltype(&attune_backward_prepare) backward_prepare = nullptr;
  decltype(&attune_backward_workspace_bytes) backward_workspace_bytes = nullptr;
  decltype(&attune_backward) backward = nullptr;
  decltype(&attune_backward_explain) backward_explain = nullptr;
  decltype(&attune_last_error) last_error = nullptr;
  decltype(&attune_abi_version) abi_version = nullptr;
  std::string path;  // "" for the one this program is made of

  static Library own();
  // Another libattune.so. Its symbols stay its own: old and new live side by side and share rounds.
  static Library open(const std::string& path);
};

// Prepared for the problem when made; throws the library's sentence if it refuses. `kernel`: "" or the one to use. An
// operation without a function in the C interface is asked of this library alone.
std::unique_ptr<Callee> library_callee(std::string name, const Library& library, const Problem& problem,
                                       const std::string& kernel, int threads = 0);

// A shared library that exports attune_contender() (attune/attune_contender.h). `name`: "" for the plug-in's own.
std::unique_ptr<Callee> plugin_callee(const std::string& path, const Problem& problem, std::string name = "");

// The same of functions that are in this process already.
std::unique_ptr<Callee> contender_callee(const attune_contender_api& api, Facts facts, const Problem& problem,
                                         std::string name);

// `config`: one of those that the GPU kernel `kernel` has for the problem.
std::unique_ptr<Callee> configured_callee(std::string name, const std::string& kernel, const std::string& config,
                                          const Problem& problem);

}  // namespace attune::lab
