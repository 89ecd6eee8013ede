// What the guard lets pass: the margins of guard.toml.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attune::lab {

struct GuardException {
  std::string problem;  // in canonical text
  double margin = 0;
  std::string reason;
};

struct GuardPolicy {
  double row_margin = 0, set_margin = 0, stored_margin = 0;
  double unclear_share = 0;  // of the rows; above it the run is unclear
  std::vector<GuardException> exceptions;

  // nullptr if the problem has the margin of all.
  const GuardException* exception_for(std::string_view problem) const;
};

// `file` begins the errors. Refuses keys it does not know, margins outside (0, 1) and exceptions without a reason.
GuardPolicy read_guard_policy(std::string_view toml, std::string_view file);

// lab/guard.toml, as compiled into this program.
GuardPolicy default_guard_policy();

}  // namespace attune::lab
