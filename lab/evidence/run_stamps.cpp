#include "lab/evidence/run_stamps.hpp"

#include "gpu/kernel.hpp"
#include "lab/evidence/stamp.hpp"

namespace attune::lab {

RunStamps stamps_of_problems(const std::vector<std::string>& problems, const std::string& kernel, Context& context,
                             int device_index) {
  RunStamps run;
  gpu::Runtime& runtime = context.gpu();
  const gpu::DeviceProperties& device = runtime.properties(device_index);
  for (const std::string& text : problems) {
    Problem problem = parse_problem(text);
    problem.device_kind = DeviceKind::cuda;
    problem.device_index = device_index;
    const Selection selection = select(problem, context, kernel);
    if (selection.chosen == nullptr) continue;
    const auto& chosen = dynamic_cast<const gpu::GpuKernel&>(*selection.chosen);
    for (const gpu::Step& step : chosen.recipe(problem, device, chosen.space(problem, device).at(0)).steps) {
      const std::string subject = subject_of(step.unit, device.arch());
      run.subjects[text].push_back(subject);
      if (run.stamps.contains(subject)) continue;
      const auto built = runtime.store().get(step.unit, device.arch(), runtime.newest_compiler_major());
      run.stamps[subject] = stamp_of(*built, chosen.name());
    }
  }
  return run;
}

}  // namespace attune::lab
