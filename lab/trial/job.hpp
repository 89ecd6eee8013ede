// What a process of its own is asked to do with code from outside: judge one entrant, or measure several. The process
// is `attune trial`, or one of Python where a callable takes part. It is asked on its standard input by objects of
// JSON, one a line, and answers each on a descriptor, likewise: who is at work, then what came of it.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lab/check/checker.hpp"
#include "lab/trial/rounds.hpp"

namespace attune::lab {

struct CheckJob {
  std::string backend;  // cpu or cuda
  Entrant entrant;
  std::vector<Case> cases;
  int64_t rows = 0;            // to compare at most; 0: what the backend affords
  double all_rows_flops = -1;  // work up to which all rows are compared; below 0: what the backend affords
};

struct RoundsJob {
  std::string backend;
  std::string problem;
  std::vector<Entrant> entrants;
  std::vector<std::vector<std::string>> ceilings;
  Protocol protocol;
  bool twin = false;
};

nlohmann::json to_json(const CheckJob& job);
nlohmann::json to_json(const RoundsJob& job);

Outcome outcome_from_json(const nlohmann::json& json);

// The answer's lines. `at`: the entrant at work, -1 for the lab itself, which may take as long as it needs.
struct AtWork {
  int at = -1;
  std::string contender;  // while it is timed
  int round = 0;
};

// In the process: does what the job asks, and writes its lines to the descriptor. Errors are lines too.
void serve(const nlohmann::json& job, int descriptor);

}  // namespace attune::lab
