// Which kernel variants a problem runs on a GPU, and their stamps: what a measurement of it speaks for.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "dispatch/context.hpp"
#include "lab/evidence/record.hpp"

namespace attune::lab {

struct RunStamps {
  std::map<std::string, std::vector<std::string>> subjects;  // by problem; none for what no kernel takes
  Stamps stamps;                                             // of all subjects
};

// By selection on the given device of the context, which may be one on paper, or of the named kernel. Compiles what is
// not in the store.
RunStamps stamps_of_problems(const std::vector<std::string>& problems, const std::string& kernel, Context& context,
                             int device_index);

}  // namespace attune::lab
