// Runs one kernel, by name, on host tensors and leaves the outputs in them. The checks know nothing else of a backend:
// a device backend copies the whole buffers (red zones included) over, runs, and copies the outputs back.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dispatch/context.hpp"
#include "dispatch/kernel.hpp"
#include "lab/check/tensors.hpp"

namespace attune::lab {

struct Choice {
  std::string kernel;  // "" if there is none
  std::string why;     // why it was chosen, or what each kernel lacks
  bool supported() const { return !kernel.empty(); }
};

class Executor {
 public:
  virtual ~Executor() = default;

  virtual DeviceKind device_kind() const = 0;

  // The kernel that would run; `kernel` is a name, or "" for the library's own choice.
  virtual Choice choose(std::string_view kernel, const Problem& problem) = 0;

  // Ways of running that must not change a bit of the result: numbers of threads, of splits. The first is the default.
  virtual std::vector<std::string> settings() const = 0;

  virtual void run(std::string_view kernel, Tensors& tensors, std::string_view setting) = 0;

  void run(std::string_view kernel, Tensors& tensors) { run(kernel, tensors, settings().front()); }

  // Names of every kernel of the operation that runs here, the library's own choices first, then those reached only by
  // force.
  std::vector<std::string> kernels(const Operation& operation) const;
};

// What this machine lacks to run the kernel, or "".
std::string absence_of(const Kernel& kernel, const Context& context);

std::unique_ptr<Executor> make_cpu_executor();

}  // namespace attune::lab
