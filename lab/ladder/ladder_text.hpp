// The climb for people, as JSON, and as the part of docs/ladder.md that is made of evidence.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lab/ladder/climb.hpp"
#include "lab/text.hpp"

namespace attune::lab {

// The waterfall: a row a rung.
Table waterfall_table(const Climb& climb);
// What is lost when something is taken away from a rung.
Table loss_table(const Climb& climb);
std::string score_text(const PredictionScore& score);

// All of it, under headings.
std::string climb_text(const std::vector<Climb>& climbs, bool markdown);
// One object a rung and set, one a loss, and one for the score.
std::vector<nlohmann::json> climb_json(const std::vector<Climb>& climbs);

// ladder.md of the docs folder with its part made anew from the newest record in the folder `evidence`/ladder. Rungs
// whose file has changed since are told apart. No record: the page says that nothing has been measured.
std::map<std::string, std::string> make_ladder_page(const std::string& docs_folder, const std::string& evidence_folder);

}  // namespace attune::lab
