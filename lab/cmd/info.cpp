// attune info: what this program is, what machine it found, and which kernels it has there.
#include <fmt/format.h>

#include <set>

#include "cpu/isa.hpp"
#include "dispatch/context.hpp"
#include "lab/check/executor.hpp"
#include "lab/check/gate.hpp"
#include "lab/cmd/commands.hpp"
#include "lab/cmd/common.hpp"
#include "lab/measure/environment.hpp"
#include "lab/sets.hpp"
#include "lab/text.hpp"

namespace attune::lab {
namespace {

int info(bool json) {
  Context context(lab_thread_options());
  nlohmann::json kernels_json = nlohmann::json::array();
  Table table({{"kernel"}, {"reached"}, {"here"}});
  for (const Kernel* kernel : kernels()) {
    const std::string absence = absence_of(*kernel, context);
    table.add({std::string(kernel->name()), kernel->selectable() ? "by selection" : "by name only",
               absence.empty() ? "yes" : "no: " + absence});
    kernels_json.push_back({{"name", kernel->name()},
                            {"selectable", kernel->selectable()},
                            {"present", absence.empty()},
                            {"absence", absence}});
  }
  const Facts facts = host_facts();
  if (json) {
    nlohmann::json out{{"kernels", kernels_json}};
    for (const auto& [name, value] : facts) out[name] = value;
    out["version"] = ATTUNE_VERSION;
    out["threads"] = context.threads().size();
    out["cpu_level"] = cpu::best_level().name;
    out["gpu"] = context.gpu().describe();
    out["gpus"] = context.gpu().device_count();
    print_json(out);
    return exit_ok;
  }
  fmt::print("attune: {}\n", ATTUNE_VERSION);
  for (const auto& [name, value] : facts) fmt::print("{}: {}\n", name, value);
  fmt::print("cpu level: {}\nthreads: {}\n", cpu::best_level().name, context.threads().size());
  fmt::print("{}\n{}\n", context.gpu().describe(), table.text());
  Table sets({{"set"}, {"problems", Table::Align::right}, {"about"}});
  for (const ProblemSet& set : builtin_sets()) sets.add({set.name, std::to_string(set.problems.size()), set.about});
  fmt::print("{}", sets.text());
  return exit_ok;
}

}  // namespace

void add_info(CLI::App& app, int& status) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("info", "what this program is, the machine it found, its kernels and sets");
  command->add_flag("--json", *json, "one object");
  command->footer("examples:\n  attune info\n  attune info --json");
  command->callback([json, &status] { status = info(*json); });
}

}  // namespace attune::lab
