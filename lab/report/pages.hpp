// The pages of docs/ that are made of evidence: tables and charts of the newest fresh speed records, put between two
// markers of a page whose other text is written by people.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lab/report/speed_rows.hpp"

namespace attune::lab {

// A record of a file.
struct FiledRecord {
  std::string file;  // without folder
  nlohmann::json record;
};
// All speed records of a folder, verified, oldest first.
std::vector<FiledRecord> speed_records_in(const std::string& folder);

// Whether a row counts: of the rows of a problem the newest that does is shown.
using RowFilter = std::function<bool(const SpeedRow&)>;
inline bool has_peers(const SpeedRow& row) { return !row.peers.empty(); }

// For each problem the newest row, in the order of `problems`, and where it comes from.
struct FreshRows {
  std::vector<SpeedRow> rows;
  std::vector<const FiledRecord*> sources;  // one per row
  std::vector<std::string> stale;           // problems whose newest row speaks of other code than today's
};
// Whether a row speaks of the code of today is told by comparing what the problem runs now (`stamps_of_problems`).
FreshRows fresh_rows(const std::vector<FiledRecord>& records, const std::vector<std::string>& problems,
                     const RowFilter& counts = has_peers);

// A line for each record: card, driver, torch and date.
std::string sources_text(const std::vector<const FiledRecord*>& sources);

// File name -> contents of every generated file: performance.md, performance.svg, latency.md, latency.svg, and those of
// make_models_page. The pages are read from `docs_folder`. Throws ATTUNE_INVALID_ARGUMENT for a page without its
// markers.
std::map<std::string, std::string> make_pages(const std::string& docs_folder, const std::string& evidence_folder);

// The text with what is between the markers replaced.
std::string with_generated(const std::string& page, const std::string& generated, const std::string& name);

}  // namespace attune::lab
