// The ladder: kernels from a scalar one to the library's own, each a file as a user would write it, with what was
// predicted for it before it was measured and what the reports found. kernels/ladder/ladder.toml lists them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/evidence/record.hpp"
#include "lab/trial/entrant.hpp"

namespace attune::lab {

// "At the geometric mean over the set it is at least `gain` times as fast as the rung before, with this probability."
struct Prediction {
  std::string set;
  double gain = 0, probability = 0;
};

struct Rung {
  std::string name, title;
  std::string over;                     // the rung it is compared with; "" for the first
  int registers = 0, shared_bytes = 0;  // the most that it may need
  std::optional<double> reported_us;
  std::string reported;
  std::vector<Prediction> predictions;
};

// A rung with one thing taken away.
struct Without {
  std::string what, of;
  std::map<std::string, int64_t> defines;
  std::map<std::string, std::string> lines;  // of the comment, by key

  std::string name() const { return of + " without " + what; }
};

struct Ladder {
  std::vector<Rung> rungs;
  std::vector<Without> without;

  const Rung* find(std::string_view name) const;
};

// Throws ATTUNE_INVALID_ARGUMENT, which names the file, the rung and what is allowed.
Ladder parse_ladder(std::string_view toml, std::string_view file);
// As it was when this program was built.
const Ladder& builtin_ladder();

// The files of kernels/ladder by their names: the rungs and what they include.
const std::map<std::string, std::string>& ladder_files();
inline std::string file_of_rung(std::string_view rung) { return std::string(rung) + ".cu"; }

// The rung's file with one thing taken away. Throws ATTUNE_INVALID_ARGUMENT where the comment has no such line.
std::string text_without(std::string text, const Without& without);

// Writes the files of the ladder and those with something taken away into a folder, which must be there. Never over a
// file that differs.
void write_ladder(const std::string& folder);

// Who climbs: the library first, then the rungs and those with something taken away, whose files lie in `folder`.
std::vector<Entrant> ladder_entrants(const Ladder& ladder, const std::string& folder);

// What a measurement of the ladder speaks for: each rung's text with what it includes.
Stamps ladder_stamps();

}  // namespace attune::lab
