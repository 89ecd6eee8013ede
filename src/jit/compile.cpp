#include "jit/compile.hpp"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "core/error.hpp"
#include "jit/embedded.hpp"

namespace attune::jit {
namespace {

// The number before `unit` in a line such as "    24 bytes stack frame, 0 bytes spill stores"; 0 if it is not there.
int number_before(std::string_view line, std::string_view unit) {
  size_t end = line.find(unit);
  if (end == std::string_view::npos) return 0;
  while (end > 0 && line[end - 1] == ' ') --end;
  size_t begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  int value = 0;
  std::from_chars(line.data() + begin, line.data() + end, value);
  return value;
}

}  // namespace

BuildReport read_log(std::string_view log) {
  BuildReport report;
  std::istringstream lines{std::string(log)};
  for (std::string line; std::getline(lines, line);) {
    report.registers = std::max(report.registers, number_before(line, "registers"));
    report.stack_bytes += number_before(line, "bytes stack frame");
    report.spill_store_bytes += number_before(line, "bytes spill stores");
    report.spill_load_bytes += number_before(line, "bytes spill loads");
    // By their words: each has several numbers, one for every cause.
    const bool ignored = line.find("'setmaxnreg' ignored") != std::string::npos;
    const bool serialised = line.find("instructions are serialized") != std::string::npos;
    report.ignored_setmaxnreg |= ignored;
    report.serialised_wgmma |= serialised;
    if (ignored || serialised) report.warnings.push_back(line);
  }
  return report;
}

Compiled Compiler::compile_program(const std::string&, const std::string&, const std::vector<std::string>&,
                                   const std::string&) const {
  fail(ATTUNE_INTERNAL_ERROR, "{} compiles kernels of this library alone", where());
}

bool Compiler::measured() const { return version() == measured_nvrtc_version; }

const std::vector<std::string>& compile_options() {
  // --no-cache: on a hit of NVRTC's own cache the text of ptxas is missing from the log.
  static const std::vector<std::string> options = {"--std=c++20", "--minimal", "--ptxas-options=-v", "--no-cache"};
  return options;
}

int major_of(std::string_view version) {
  int major = 0;
  std::from_chars(version.data(), version.data() + version.size(), major);
  return major;
}

}  // namespace attune::jit
