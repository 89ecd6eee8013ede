// What is to be judged and timed: a kernel of this library, or code from outside, which is named by its file.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "attune/attune_contender.h"
#include "core/problem.hpp"
#include "lab/measure/callee.hpp"

namespace attune::lab {

struct Entrant {
  std::string name{};      // in tables; "" for a plug-in: its own
  std::string kernel{};    // "": the library's own choice
  std::string library{};   // path of another libattune.so, or ""
  std::string plugin{};    // path of a plug-in, or ""
  std::string config{};    // of the kernel's configurations, or "": its own choice
  int threads = 0;         // on a CPU; 0: what the library takes by itself
  std::string callable{};  // a function of Python as module:function, or ""
  std::string source{};    // path of a .cu file, or ""
  bool unfused = false;    // the file is the middle of three launches (lab/ladder/unfused.hpp)

  bool own() const { return library.empty() && plugin.empty() && callable.empty() && source.empty(); }
  // But for the number of threads.
  bool same_code(const Entrant& other) const;
  // How the command line brings it: "--plugin ./mine.so". "" for a kernel of this library.
  std::string option() const;
};

nlohmann::json to_json(const Entrant& entrant);
Entrant entrant_from_json(const nlohmann::json& json);

// Ready to be called for the problem. Throws what the entrant complains of.
std::unique_ptr<Callee> callee_of(const Entrant& entrant, const Problem& problem);

// In a process of Python: what is behind a callable. `api` must outlive everything that is made of it.
void provide_callable(const std::string& callable, const attune_contender_api* api);

}  // namespace attune::lab
