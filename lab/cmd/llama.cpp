// attune llama: tokens per second and their cost, of LLaMA-7B's shapes with Attune and with torch's SDPA. The work is
// done by `python3 -m attune.lab llama`, which this starts beside the engine and the library.
#include "lab/cmd/commands.hpp"
#include "lab/cmd/peers.hpp"

namespace attune::lab {

void add_llama(CLI::App& app, int& status) {
  const auto python = std::make_shared<std::string>("python3");
  CLI::App* command = app.add_subcommand("llama", "tokens per second of LLaMA-7B's shapes, and their cost (torch)");
  command->set_help_flag();  // the host knows its options
  command->allow_extras();
  command->add_option("--python", *python, "the Python that has torch and transformers (by default python3)");
  command->callback([command, python, &status] {
    PeerRun run;
    run.command = {*python, "-m", "attune.lab", "llama"};
    for (const auto& [option, file] :
         {std::pair("--engine", "libattune_lab_engine.so"), std::pair("--library", "libattune.so")}) {
      run.command.emplace_back(option);
      run.command.push_back(library_in(own_folder(), file, "attune llama"));
    }
    for (const std::string& word : command->remaining()) run.command.push_back(word);
    run.python_path = package_beside(own_folder());
    status = run_peers(run);
  });
}

}  // namespace attune::lab
