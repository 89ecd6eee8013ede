// Options that are numbers, judged as they are read: what is none, or out of range, is an error that names the option,
// the value and what is allowed.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

// CLI11 is slow to compile: who only passes it on does without.
namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace attune::lab {

// What an option without an upper limit of its own is held to.
constexpr int64_t most_of_anything = int64_t{1} << 40;
constexpr int most_threads = 4096;

CLI::Option* add_whole_number(CLI::App& command, const std::string& option, int64_t& value, int64_t least, int64_t most,
                              const std::string& about);
CLI::Option* add_whole_number(CLI::App& command, const std::string& option, int& value, int least, int most,
                              const std::string& about);
// Any number of 64 bits.
CLI::Option* add_seed(CLI::App& command, uint64_t& value, const std::string& about);
// Several with commas, such as 1,2; each once.
CLI::Option* add_whole_numbers(CLI::App& command, const std::string& option, std::vector<int>& values, int least,
                               int most, const std::string& about);
// `most` may be infinite, a value may not.
CLI::Option* add_number(CLI::App& command, const std::string& option, double& value, double least, double most,
                        const std::string& about);

// Set only where it is given.
CLI::Option* add_number(CLI::App& command, const std::string& option, std::optional<double>& value, double least,
                        double most, const std::string& about);

// How long and how often bench, run and guard measure.
CLI::Option* add_rounds(CLI::App& command, int& value);
CLI::Option* add_samples(CLI::App& command, int& value, const std::string& about);
CLI::Option* add_budget(CLI::App& command, double& value, const std::string& about);

}  // namespace attune::lab
