// What a time is worth: which of a machine's ceilings bounds a kernel at a problem, and the share of it that was
// reached. On a CPU the probe of a ceiling runs in the rounds of the kernel, and the share is formed inside them: the
// speed of a virtual machine's tile unit changes by factors from one second to the next.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/operation.hpp"
#include "lab/measure/ceilings.hpp"

namespace attune::lab {

// What a CPU multiplies pairs of bf16 by, besides float32.
struct PairUnits {
  bool tiles = false, vectors = false;
};

// The ceilings of a CPU that may bound a kernel at the problem: of computing, and for few rows of reading. `kernel`:
// its name; "": somebody else's code, which may use all the machine has.
std::vector<std::string> cpu_ceilings_of(const Problem& problem, std::string_view kernel, PairUnits machine);

// What the problem asks of a ceiling: useful operations, or for `read` the bytes that must be touched.
double work_for(const Problem& problem, std::string_view ceiling);

struct Share {
  std::string ceiling, unit;
  std::optional<double> value;       // of the ceiling, in its unit; none where it is absent
  double estimate = 0;               // 1: at the ceiling
  std::optional<RoundRatio> rounds;  // on a CPU: what the estimate is the median of
  std::string probe;                 // the contender that measured the ceiling in the same rounds; "" on a GPU
};

// Of a GPU's products, by a ceiling measured apart.
Share gpu_share(const Ceiling& matmul, double flops, double measured_seconds);

// A probe that took part, and the work of one of its calls.
struct ProbeRecording {
  CeilingName ceiling;
  double work = 0;
  const Recording* recording = nullptr;
};
Share share_in_rounds(const Recording& kernel, double kernel_work, const ProbeRecording& probe,
                      const stats::VerdictRule& rule);

// "" unless the share is above 110 %, its interval included: then a sentence. Either the work is not done or the
// ceiling is none. Not for reading what a cache holds, nor for float32 products that may have been made on tiles.
std::string ceiling_alarm(const Share& share, const Problem& problem, std::string_view kernel, PairUnits machine);

// "41.2 % [39.8, 43.0] of fma", on a GPU "72 %", where there is no ceiling "-".
std::string share_text(const Share& share);

// The fields ceiling, ceiling_value, ceiling_unit and share; on a CPU share_lo and share_hi, on a GPU peak_gflops.
nlohmann::json share_json(const Share& share);

// What the probes of a run measured, over all problems.
class CeilingFigures {
 public:
  void note(const CeilingName& ceiling, int threads, double value);
  // "fma: 138 GFLOP/s (median of 3 problems, 120 to 140), float32 multiply-adds in registers, 2 threads", a line each.
  std::string text() const;

 private:
  struct Key {
    std::string ceiling;
    int threads;
    auto operator<=>(const Key&) const = default;
  };
  struct Figures {
    CeilingName ceiling;
    std::vector<double> values;
  };
  std::map<Key, Figures> figures_;
};

}  // namespace attune::lab
