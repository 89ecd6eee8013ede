// attune selection: what would run for every problem of the built-in sets, on a typical card of each architecture.
#include <fmt/format.h>

#include "lab/cmd/commands.hpp"
#include "lab/output.hpp"
#include "lab/pack/selection.hpp"

namespace attune::lab {

void add_selection(CLI::App& app, int& status) {
  auto file = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("selection", "what is selected for the built-in sets on typical GPUs");
  command->add_option("--out", *file, "write the table here");
  command->footer("examples:\n  attune selection\n  attune selection --out docs/selection.md");
  command->callback([file, &status] {
    const std::string table = selection_table();
    if (file->empty())
      fmt::print("{}", table);
    else
      write_file(*file, table);
    status = exit_ok;
  });
}

}  // namespace attune::lab
