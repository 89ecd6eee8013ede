#include "lab/cmd/speed_evidence.hpp"

#include "core/error.hpp"
#include "lab/cmd/common.hpp"
#include "lab/evidence/run_stamps.hpp"
#include "lab/output.hpp"

namespace attune::lab {

nlohmann::json stamped_speed_record(std::vector<SpeedResult> results, const std::string& kernel,
                                    const Facts& environment, const Stamps& others) {
  if (results.empty()) return nullptr;
  std::vector<std::string> problems;
  for (const SpeedResult& result : results) problems.push_back(result.problem);
  RunStamps run;
  try {
    Context context(lab_thread_options());
    if (context.gpu().device_count() > 0) run = stamps_of_problems(problems, kernel, context, 0);
  } catch (const Error& error) {
    remark("without stamps, so that no document will show it: {}\n", error.what());
  }
  for (SpeedResult& result : results) result.subjects = run.subjects[result.problem];
  run.stamps.insert(others.begin(), others.end());
  return speed_record(results, environment, run.stamps, utc_now());
}

}  // namespace attune::lab
