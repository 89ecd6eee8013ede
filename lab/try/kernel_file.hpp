// A .cu file with one forward attention kernel, and the comment in it that says how it is launched:
//
//   // attune kernel
//   // entry: attention
//   // threads: 64
//   // grid: ceil_div(q, 64), h, b
//   // shared: 2 * 64 * d * 2
//   // arguments: Q, K, V, O, LSE, h, hkv, q, k, d, scale, causal
//   // supports: f16, bf16, causal, groups, d <= 128
//
// docs/your-kernel.md describes each line.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/operands.hpp"
#include "lab/try/expression.hpp"

namespace attune::lab {

struct KernelFile {
  std::string path, text;
  std::string entry;
  std::string threads, shared = "0";
  std::vector<std::string> grid;  // 1 to 3
  std::vector<std::string> arguments;
  std::vector<std::pair<std::string, std::string>> defines;  // name, expression
  std::vector<std::string> supports;
  bool heads_first = false;  // the tensors are (batch, head, row, dim)

  bool takes(std::string_view argument) const;
};

// Throw ATTUNE_INVALID_ARGUMENT, which names file, line, what is there and what is allowed.
KernelFile read_kernel_file(const std::string& path);
KernelFile parse_kernel_file(std::string path, std::string text);

// What expressions know of a problem: b, h, hkv, q, k, d, dv and causal (0, 1 top-left, 2 bottom-right).
Variables variables_of(const Problem& problem);

// Why the kernel does not take the problem, or "".
std::string refusal_of(const KernelFile& file, const Problem& problem);

// A launch for a problem, as numbers.
struct KernelLaunch {
  std::array<uint32_t, 3> grid{1, 1, 1};
  uint32_t threads = 0, shared_bytes = 0;
};
KernelLaunch launch_of(const KernelFile& file, const Problem& problem);

// The arguments of one call as the kernel gets them, one after the other: pointers, int, float, and int64_t where the
// file says long.
struct KernelArgument {
  std::array<std::byte, 8> bytes{};
  size_t size = 0;
};
// `lse`: where it is written, also where the problem does not ask for it.
std::vector<KernelArgument> arguments_of(const KernelFile& file, const Problem& problem, const Operands& operands,
                                         void* lse);

}  // namespace attune::lab
