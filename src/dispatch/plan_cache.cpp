#include "dispatch/plan_cache.hpp"

#include <xxhash.h>

#include <cstring>
#include <mutex>

namespace attune {

static_assert(sizeof(PlanKey) == sizeof(Problem) + 2 * sizeof(int64_t), "PlanKey has padding");

template <typename T>
PlanKey::PlanKey(Of what, const T& value, int64_t of_alignment) : of_(what), alignment_(of_alignment) {
  static_assert(sizeof value <= sizeof bytes_);
  std::memcpy(bytes_.data(), &value, sizeof value);
  std::memset(bytes_.data() + sizeof value, 0, sizeof bytes_ - sizeof value);
}

PlanKey::PlanKey(const attune_forward_desc& desc, int64_t alignment) : PlanKey(Of::forward_desc, desc, alignment) {}
PlanKey::PlanKey(const attune_backward_desc& desc, int64_t alignment) : PlanKey(Of::backward_desc, desc, alignment) {}
PlanKey::PlanKey(const attune_merge_desc& desc, bool with_lse, int64_t alignment)
    : PlanKey(with_lse ? Of::merge_desc_with_lse : Of::merge_desc, desc, alignment) {}
PlanKey::PlanKey(const Problem& problem, int64_t alignment) : PlanKey(Of::problem, problem, alignment) {}

PlanKey PlanKey::with_alignment(int64_t other) const {
  PlanKey key = *this;
  key.alignment_ = other;
  return key;
}

bool PlanKey::operator==(const PlanKey& other) const { return std::memcmp(this, &other, sizeof *this) == 0; }

size_t PlanCache::Hash::operator()(const PlanKey& key) const { return XXH3_64bits(&key, sizeof key); }

std::shared_ptr<const Plan> PlanCache::find(const PlanKey& key) const {
  const std::shared_lock lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return nullptr;
  // Read first: threads that use one plan must not take its cache line from each other.
  if (!found->second.used.load(std::memory_order_relaxed)) found->second.used.store(true, std::memory_order_relaxed);
  return found->second.plan;
}

std::shared_ptr<const Plan> PlanCache::keep(const PlanKey& key, const std::shared_ptr<const Plan>& plan) {
  const std::unique_lock lock(mutex_);
  const auto [entry, added] = entries_.try_emplace(key, plan);
  if (added) take_seat(*entry);
  return entry->second.plan;
}

void PlanCache::pin(const PlanKey& key, const std::shared_ptr<const Plan>& plan) {
  const std::unique_lock lock(mutex_);
  const auto [entry, added] = entries_.try_emplace(key, plan);
  if (!added && entry->second.seat != no_seat) leave_seat(entry->second);
}

size_t PlanCache::size() const {
  const std::shared_lock lock(mutex_);
  return entries_.size();
}

void PlanCache::leave_seat(Entry& entry) {
  seats_.back()->second.seat = entry.seat;
  seats_[entry.seat] = seats_.back();
  seats_.pop_back();
  entry.seat = no_seat;
}

void PlanCache::take_seat(Entries::value_type& entry) {
  if (seats_.size() < capacity_) {
    entry.second.seat = seats_.size();
    seats_.push_back(&entry);
    return;
  }
  for (;; ++hand_) {
    if (hand_ >= seats_.size()) hand_ = 0;
    if (!seats_[hand_]->second.used.exchange(false, std::memory_order_relaxed)) break;
  }
  entries_.erase(entries_.find(seats_[hand_]->first));
  seats_[hand_] = &entry;
  entry.second.seat = hand_++;
}

}  // namespace attune
