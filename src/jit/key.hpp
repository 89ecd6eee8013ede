// The content key of a cubin: equal keys, equal kernels.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "jit/source.hpp"

namespace attune::jit {

struct Key {
  std::array<uint8_t, 16> bytes{};  // XXH3-128, big-endian
  auto operator<=>(const Key&) const = default;
};
std::string to_string(const Key& key);  // 32 hex digits

// Over everything that decides what the compiler will see, comments and spacing left out.
Key content_key(const std::string& unit_text, const std::vector<SourceFile>& headers, std::string_view arch);

// The same together with the compiler that saw it.
Key cubin_key(const Key& content, std::string_view compiler_version);

}  // namespace attune::jit
