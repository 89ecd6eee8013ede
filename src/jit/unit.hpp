// A DeviceUnit is one kernel to compile: a device header, the constants of its Variant and Config, and what the host
// knows about the layout of its parameters. It becomes a translation unit of a dozen lines:
//
//   #include "kernels/any/fwd.cuh"
//   namespace attune::device::any_fwd {
//   constexpr Variant variant = {.dtype = Dtype::bf16, .dim_qk = 128, .dim_v = 128};
//   constexpr Config config = {.rows = 16};
//   static_assert(sizeof(Params) == 424);
//   extern "C" __global__ void __launch_bounds__(128, 4) attn_kernel(const __grid_constant__ Params params) {
//     run<variant, config>(params);
//   }
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kernels/common/types.cuh"

namespace attune::jit {

inline constexpr char entry_name[] = "attn_kernel";

// An expression of the device compiler and the value the host has for it.
struct LayoutFact {
  std::string expression;
  uint64_t value = 0;
};

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
  bool operator==(const Dim3&) const = default;
};

struct DeviceUnit {
  std::string name;     // of the kernel, for messages: "any/fwd"
  std::string file;     // "kernels/any/fwd.cuh"
  std::string scope;    // the namespace of Variant, Config, Params and run
  std::string variant;  // designated initialisers, see Initializer
  std::string config;
  std::vector<LayoutFact> layout;
  uint32_t params_bytes = 0;
  uint32_t threads = 0;
  uint32_t min_blocks_per_sm = 1;
  uint32_t smem_bytes = 0;  // dynamic shared memory
  Dim3 cluster;             // {1,1,1}: none
  // Registers x threads, summed over the roles after setmaxnreg; 0 if the kernel does not use it. At most 65536.
  uint32_t role_registers = 0;
};

std::string source_of(const DeviceUnit& unit);
std::string label_of(const DeviceUnit& unit);  // "any/fwd {.dtype = ...} {.rows = 16}"

// sizeof and offsetof of a parameter struct as both compilers see them.
#define ATTUNE_SIZE_FACT(type) \
  ::attune::jit::LayoutFact { "sizeof(" #type ")", sizeof(type) }
// offsetof is not there without standard headers; this is the intrinsic behind it.
#define ATTUNE_OFFSET_FACT(type, field) \
  ::attune::jit::LayoutFact { "__INTADDR__(&((" #type "*)0)->" #field ")", offsetof(type, field) }

// Writes designated initialisers: Initializer().add("dtype", dtype).add("stages", 2).text(). Enums of a kernel's own
// are given by name: add_text("mask", "Mask::causal").
class Initializer {
 public:
  template <typename Integer>
    requires std::is_integral_v<Integer>
  Initializer& add(std::string_view field, Integer value) {
    return add_text(field, std::to_string(value));
  }
  Initializer& add(std::string_view field, bool value) { return add_text(field, value ? "true" : "false"); }
  Initializer& add(std::string_view field, device::Dtype value);
  Initializer& add_text(std::string_view field, std::string_view value);

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace attune::jit
