// Compiles a device unit to a cubin, and reads from the compiler's log what ptxas thought of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jit/source.hpp"

namespace attune::jit {

// What ptxas -v says. Sums over all functions of the unit; one kernel inlines everything, so there is one.
struct BuildReport {
  int registers = 0;
  int stack_bytes = 0;
  int spill_store_bytes = 0;
  int spill_load_bytes = 0;
  bool ignored_setmaxnreg = false;    // roles would run with the registers of the launch
  bool serialised_wgmma = false;      // matrix instructions wait for each other, about half the speed
  std::vector<std::string> warnings;  // the lines that said so

  bool spills() const { return spill_store_bytes != 0 || spill_load_bytes != 0; }
  bool clean() const { return !spills() && stack_bytes == 0 && !ignored_setmaxnreg && !serialised_wgmma; }
};

BuildReport read_log(std::string_view log);

struct Compiled {
  std::string cubin;
  BuildReport report;
  double seconds = 0;
};

// One compiler, known by its version. The tests bring others.
class Compiler {
 public:
  Compiler() = default;
  Compiler(const Compiler&) = delete;
  Compiler& operator=(const Compiler&) = delete;
  virtual ~Compiler() = default;

  virtual const std::string& version() const = 0;  // "13.0.88"
  virtual std::string where() const = 0;           // the library's path

  // Throws ATTUNE_COMPILE_ERROR with the log. Thread-safe.
  virtual Compiled compile(const std::string& text, const std::vector<SourceFile>& headers,
                           const std::string& arch) const = 0;

  // The same of a program of somebody else, whose name is for messages, with options such as -I and -D before the usual
  // ones.
  virtual Compiled compile_program(const std::string& name, const std::string& text,
                                   const std::vector<std::string>& options, const std::string& arch) const;

  bool measured() const;  // the version of kernels/compiler.toml
};

// The options a kernel is compiled with, apart from its architecture: part of its content key.
const std::vector<std::string>& compile_options();

int major_of(std::string_view version);  // 13 of "13.0.88"

}  // namespace attune::jit
