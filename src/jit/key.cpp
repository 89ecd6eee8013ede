#include "jit/key.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include "jit/compile.hpp"

namespace attune::jit {
namespace {

class Hasher {
 public:
  Hasher() { XXH3_128bits_reset(&state_); }

  // With its length, so that no two lists of texts run into each other.
  Hasher& add(std::string_view text) {
    const uint64_t size = text.size();
    XXH3_128bits_update(&state_, &size, sizeof size);
    XXH3_128bits_update(&state_, text.data(), text.size());
    return *this;
  }

  Key key() const {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state_));
    Key key;
    std::copy(std::begin(canonical.digest), std::end(canonical.digest), key.bytes.begin());
    return key;
  }

 private:
  XXH3_state_t state_;
};

}  // namespace

std::string to_string(const Key& key) { return fmt::format("{:02x}", fmt::join(key.bytes, "")); }

Key content_key(const std::string& unit_text, const std::vector<SourceFile>& headers, std::string_view arch) {
  Hasher hasher;
  hasher.add(arch).add(without_comments(unit_text));
  for (const std::string& option : compile_options()) hasher.add(option);
  for (const SourceFile& header : headers) hasher.add(header.path).add(without_comments(header.text));
  return hasher.key();
}

Key cubin_key(const Key& content, std::string_view compiler_version) {
  return Hasher()
      .add({reinterpret_cast<const char*>(content.bytes.data()), content.bytes.size()})
      .add(compiler_version)
      .key();
}

}  // namespace attune::jit
