#include "core/forks.hpp"

#include <pthread.h>

namespace attune {

std::atomic<uint32_t> fork_count{0};

namespace {

// When the library is loaded, and not at the first use: another thread could fork in the middle of that.
[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, [] { fork_count.fetch_add(1, std::memory_order_relaxed); });

}  // namespace
}  // namespace attune
