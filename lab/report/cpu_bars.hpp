// The bars of lab/bars.toml for CPUs: shares of ceilings that were probed in the same rounds, speeds and times; and
// what rows measured by `attune bench` say about each.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/report/bars.hpp"
#include "lab/stats/interval.hpp"
#include "lab/text.hpp"

namespace attune::lab {

struct CpuBar : BarCoverage {
  enum class Kind { share, gflops, speedup, microseconds };
  Kind kind = Kind::share;
  double value = 0;               // at least; of microseconds at most
  std::optional<double> stretch;  // what would be better still
  std::string of;                 // the ceiling of a share
  std::string kernel;             // it speaks of this one alone; "": of any
  int threads = 0;                // and of this number alone; 0: of any
  int over_threads = 0;           // of a speedup: over the same with this number
};

// Throws ATTUNE_INVALID_ARGUMENT naming the bar and the key that is missing, wrong or not known.
std::vector<CpuBar> cpu_bars_from(std::string_view toml);
// Those of lab/bars.toml, as compiled into this program.
const std::vector<CpuBar>& cpu_bars();

struct Measured {
  double estimate = 0;  // by rounds
  stats::Interval interval;
  double quickest = 0;  // by the quickest samples
};

// A kernel at a problem, with a number of threads.
struct CpuRow {
  std::string problem, kernel;
  int threads = 0;
  double flops = 0;
  Measured seconds;
  std::map<std::string, Measured> shares;  // by ceiling
  std::map<int, Measured> speedups;        // over other numbers of threads
};

struct CpuBarResult {
  CpuBar bar;
  int threads = 0;
  BarState state = BarState::incomplete;
  std::string why;  // one clause; "" if it is met, also in the median
  size_t rows = 0;
  std::optional<Measured> farthest;  // the row that is farthest from the bar, in the bar's unit
  std::string farthest_problem;
};

// One for each bar that speaks of at least one of the problems, and each number of threads it could be judged with.
std::vector<CpuBarResult> compare_with_cpu_bars(const std::vector<CpuRow>& rows, const std::vector<CpuBar>& bars);

Table cpu_bars_table(const std::vector<CpuBarResult>& results);
nlohmann::json to_json(const CpuBarResult& result);

}  // namespace attune::lab
