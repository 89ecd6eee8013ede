// Named lists of problems; `attune info` lists them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attune::lab {

struct ProblemSet {
  std::string name;
  std::string about;                  // one clause
  std::vector<std::string> problems;  // in the canonical text form
};

// The sets that come with the lab.
const std::vector<ProblemSet>& builtin_sets();

// A built-in set by name, or a TOML file by path: `problems = ["fwd b1 ...", ...]` and, if it likes, `name` and
// `about`. Throws ATTUNE_INVALID_ARGUMENT for anything else, naming the line of the file or the sets there are.
ProblemSet find_set(std::string_view name_or_path);

// A problem of less work with the same lengths of keys, for machines on which the whole would take too long: halves
// batch, then heads, then queries until `flops` is kept, which stands for a number of elements as well. The same text
// if it was small enough.
std::string reduced(const std::string& problem, double flops);

}  // namespace attune::lab
