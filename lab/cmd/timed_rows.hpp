// A timed problem as `attune bench` hands it on: as JSON, to a record, to the bars of CPUs.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lab/cmd/timing.hpp"
#include "lab/report/cpu_bars.hpp"

namespace attune::lab {

// What a check measured, and the bounds it passed.
std::map<std::string, double> figures_of(const Judgement& judgement);

// docs/measuring.md lists the fields.
nlohmann::json to_json(const TimedProblem& timed, const TimedEntrant& entrant);

// What takes no part, as JSON and for people.
nlohmann::json to_json(const std::string& problem, const NotTimed& absent);
std::string text_of(const std::string& problem, const NotTimed& absent);

// The first `thread_counts` entrants, which are the first kernel with each number of threads: what bars are about.
std::vector<CpuRow> cpu_rows_of(const TimedProblem& timed, size_t thread_counts);

}  // namespace attune::lab
