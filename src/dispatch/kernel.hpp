// What a kernel is to the rest of the library, and the registry that lists them all.
//
// A kernel registers itself with one namespace-scope `const Registration<MyKernel> registration;` in its own
// .cpp. Selection, forcing, tests, the lab and Python iterate the registry: a new kernel needs no edit there.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/operation.hpp"

namespace attune {

class Context;  // dispatch/context.hpp: threads, devices, the store

class Plan;

// One of the ways in which a kernel can run a problem.
struct Configuration {
  std::string text;
  double predicted_seconds = 0;
};

// A kernel's answer to a problem. What it rests on, such as a configuration and a schedule, waits inside for the plan,
// so that nothing is chosen twice.
struct Offer {
  double predicted_seconds = 0;
  bool overlaps = false;  // see Kernel::overlaps
  std::function<std::unique_ptr<const Plan>(Context&)> plan;
};

class Kernel {
 public:
  virtual ~Kernel() = default;

  virtual std::string_view name() const = 0;  // "cpu/portable", "any/fwd", "sm90/fwd"
  virtual DeviceKind device_kind() const = 0;
  virtual const Operation& operation() const { return forward_operation; }

  // Kernels that exist to be compared with (references, unfused baselines), those that another one of this machine
  // always beats, and those that no card has checked yet are reached only by force.
  virtual bool selectable() const { return true; }

  // Why this kernel cannot serve the problem here, as a clause ("head dim 80 is not 64, 128 or 256"), or "".
  virtual std::string refusal(const Problem& problem, const Context& context) const = 0;

  // Bytes to which the operands of Form::rows in the problem's dtype must be aligned (of the forward pass q, k, v and
  // o). A call with less goes to the best kernel that is content with it.
  virtual int64_t pointer_alignment(const Problem& problem) const { return bytes_of(problem.dtype); }

  // Predicted run time: the selection takes the smallest. Only the order matters.
  virtual double predicted_seconds(const Problem& problem, const Context& context) const = 0;

  // Those of a problem it does not refuse, best first: the first is the one it takes. None if there is only one way.
  virtual std::vector<Configuration> configurations(const Problem&, const Context&) const { return {}; }

  // Whether it starts, where ATTUNE_OVERLAP is asked for, while the kernel before it in the stream is still ending.
  virtual bool overlaps(const Problem&, const Context&) const { return false; }

  // Everything that can be done before the tensors are known. Called once per problem and context.
  virtual std::unique_ptr<const Plan> plan(const Problem& problem, Context& context) const = 0;

  // Of a problem that it does not refuse: predicted_seconds(), overlaps() and plan() at once, for kernels that would
  // otherwise make the same choice in each of them.
  virtual Offer offer(const Problem& problem, const Context& context) const {
    return {predicted_seconds(problem, context), problem.has(ATTUNE_OVERLAP) && overlaps(problem, context),
            [this, problem](Context& with) { return plan(problem, with); }};
  }

  // For kernels that are few and serve every problem of their operation. attune_prepare has them made ready for its
  // device, whatever it prepares, and from then on their plans may be made inside a graph capture.
  virtual void make_ready(int /*device_index*/, Context&) const {}
  virtual bool is_ready(int /*device_index*/, const Context&) const { return false; }
};

// Immutable once made; run() may be called from many threads at once.
class Plan {
 public:
  Plan(const Kernel& of_kernel, const Problem& of_problem) : kernel(of_kernel), problem(of_problem) {}
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  virtual ~Plan() = default;

  virtual void run(const Operands& operands, void* stream) const = 0;
  virtual uint64_t workspace_bytes() const { return 0; }
  // What the kernel would like a reader to know: tiles, grid, shared memory, where the cubin came from.
  virtual std::string describe() const { return {}; }

  const Kernel& kernel;
  const Problem problem;
};

// Sorted by name.
const std::vector<const Kernel*>& kernels();
const Kernel* find_kernel(std::string_view name);  // nullptr if there is none

void register_kernel(std::unique_ptr<const Kernel> kernel);

template <typename K>
struct Registration {
  Registration() { register_kernel(std::make_unique<const K>()); }
};

}  // namespace attune
