// The plans that a context keeps, found by the bytes of a descriptor, or of the problem that several descriptors ask
// for. Lengths that never come back must not fill the memory, so only the plans used last are kept, and those that
// attune_prepare made.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "dispatch/kernel.hpp"

namespace attune {

struct PlanKey {
  // `alignment`: that the plan may count on.
  PlanKey(const attune_forward_desc& desc, int64_t alignment);
  PlanKey(const attune_backward_desc& desc, int64_t alignment);
  PlanKey(const attune_merge_desc& desc, bool with_lse, int64_t alignment);
  PlanKey(const Problem& problem, int64_t alignment);

  bool operator==(const PlanKey& other) const;
  PlanKey with_alignment(int64_t other) const;

 private:
  friend class PlanCache;
  enum class Of : int64_t { forward_desc, backward_desc, merge_desc, merge_desc_with_lse, problem };
  template <typename T>
  PlanKey(Of what, const T& value, int64_t of_alignment);

  [[maybe_unused]] Of of_;  // compared and hashed with the rest, by bytes
  int64_t alignment_;
  alignas(8) std::array<std::byte, sizeof(Problem)> bytes_;  // the rest 0
};

// Thread-safe. A plan lives for as long as somebody holds it, kept or not.
class PlanCache {
 public:
  // For 4096 descriptors, each with a problem of its own.
  static constexpr size_t default_capacity = 2 * 4096;

  // capacity: of plans that attune_prepare did not make.
  explicit PlanCache(size_t capacity = default_capacity) : capacity_(capacity) {}

  std::shared_ptr<const Plan> find(const PlanKey& key) const;

  // Keeps the plan and returns it; or returns the one that another thread kept first. A kept plan makes room for
  // others when it has not been used for a while, unless it is pinned.
  std::shared_ptr<const Plan> keep(const PlanKey& key, const std::shared_ptr<const Plan>& plan);

  // Keeps the plan whatever comes.
  void pin(const PlanKey& key, const std::shared_ptr<const Plan>& plan);

  size_t size() const;

 private:
  static constexpr size_t no_seat = SIZE_MAX;
  struct Entry {
    explicit Entry(std::shared_ptr<const Plan> of_plan) : plan(std::move(of_plan)) {}
    std::shared_ptr<const Plan> plan;
    mutable std::atomic<bool> used{false};  // found since the hand passed; written under the shared lock
    size_t seat = no_seat;                  // in seats_; pinned plans have none
  };
  struct Hash {
    size_t operator()(const PlanKey& key) const;
  };
  using Entries = std::unordered_map<PlanKey, Entry, Hash>;

  void take_seat(Entries::value_type& entry);
  void leave_seat(Entry& entry);

  const size_t capacity_;
  mutable std::shared_mutex mutex_;
  Entries entries_;
  // The clock algorithm: the hand goes round the seats, spares whom it finds used, and takes the first that is not.
  std::vector<Entries::value_type*> seats_;
  size_t hand_ = 0;
};

}  // namespace attune
