// Chooses the kernel for a problem, and can say why.
#pragma once

#include <string>
#include <vector>

#include "dispatch/kernel.hpp"

namespace attune {

struct Candidate {
  const Kernel* kernel = nullptr;
  Offer offer;          // empty if refused
  std::string refusal;  // "" if it could run
};

struct Selection {
  const Kernel* chosen = nullptr;     // nullptr: no kernel can; `why` says what each one lacks
  const Kernel* runner_up = nullptr;  // nullptr: there was no other
  std::string why;
  std::vector<Candidate> candidates;  // every kernel of the device, best first, refusals last; the first is the chosen
};

// `forced`: "" or the only kernel allowed. `alignment`: bytes to which q, k, v and o are known to be aligned.
inline constexpr int64_t any_alignment = int64_t{1} << 20;
Selection select(const Problem& problem, const Context& context, std::string_view forced,
                 int64_t alignment = any_alignment);

// What was chosen and why, with the predicted times of every candidate and of the chosen kernel's configurations.
std::string explanation(const Problem& problem, const Selection& selection, const Context& context);

}  // namespace attune
