// Whether this is a build with sanitizers, as the preprocessor and as code see it.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ATTUNE_UNDER_SANITIZERS
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ATTUNE_UNDER_SANITIZERS
#endif
#endif

namespace attune::test {

#ifdef ATTUNE_UNDER_SANITIZERS
inline constexpr bool under_sanitizers = true;
#else
inline constexpr bool under_sanitizers = false;
#endif

}  // namespace attune::test
