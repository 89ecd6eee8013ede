// docs/models.md: the calls of real models beside everything that torch has for them, from one record, and the sentence
// of the README that sums it up.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lab/report/pages.hpp"

namespace attune::lab {

// The newest record that measured more than half of the set's problems; nullptr: there is none.
const FiledRecord* record_of_models(const std::vector<FiledRecord>& records);

// "Of 46 calls of real models, 40 are faster than the fastest thing in torch, geometric mean 1.3 [1.2, 1.4]." `rows`
// may be fewer than the calls: what was not measured is not faster. "" without a row that has a peer.
std::string models_headline(const std::vector<SpeedRow>& rows);

// File name -> contents of models.md, models.svg and ../README.md, whose part between the markers is the headline with
// the chart. Without a record only the README, with nothing there.
std::map<std::string, std::string> make_models_page(const std::vector<FiledRecord>& records,
                                                    const std::string& docs_folder);

}  // namespace attune::lab
