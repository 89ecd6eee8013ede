#include "lab/report/speed_text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace attune::lab {
namespace {

using nlohmann::json;
using Align = Table::Align;

std::string microseconds(const Summary& summary) {
  const int digits = summary.seconds < 100e-6 ? 2 : 1;
  return fmt::format("{:.{}f} [{:.{}f}, {:.{}f}]", summary.seconds * 1e6, digits, summary.interval.lower * 1e6, digits,
                     summary.interval.upper * 1e6, digits);
}

// Every peer of any row, in the order they first appear.
std::vector<Against> peers_of(const std::vector<SpeedRow>& rows) {
  std::vector<Against> peers;
  for (const SpeedRow& row : rows)
    for (const Against& peer : row.peers)
      if (std::ranges::find(peers, peer.peer, &Against::peer) == peers.end()) peers.push_back(peer);
  return peers;
}

std::string bar_text(const std::optional<double>& bar) { return bar ? fmt::format("{:.2f}", *bar) : "-"; }

}  // namespace

std::string ratio_text(double estimate, const stats::Interval& interval) {
  return fmt::format("{:.3f} [{:.3f}, {:.3f}]", estimate, interval.lower, interval.upper);
}

Table speed_table(const std::vector<SpeedRow>& rows) {
  const std::vector<Against> peers = peers_of(rows);
  std::vector<Table::Column> columns{{"problem"}, {"kernel"}, {"us", Align::right}, {"TFLOP/s", Align::right}};
  for (const Against& peer : peers)
    columns.push_back({fmt::format("over {}{}", peer.peer, peer.derived ? " (recorded)" : ""), Align::right});
  columns.push_back({"over the fastest", Align::right});
  columns.push_back({"verdict"});
  Table table(std::move(columns));
  for (const SpeedRow& row : rows) {
    std::vector<std::string> cells{row.problem, row.kernel, microseconds(row.ours),
                                   row.flops > 0 ? fmt::format("{:.0f}", row.flops / row.ours.seconds / 1e12) : "-"};
    for (const Against& peer : peers) {
      const Against* found = row.find(peer.peer);
      cells.push_back(found == nullptr ? "-" : ratio_text(found->estimate, found->interval));
    }
    const Against* fastest = row.fastest();
    cells.push_back(fastest == nullptr ? "-" : ratio_text(fastest->estimate, fastest->interval));
    cells.push_back(fastest == nullptr ? "-" : fmt::format("{} than {}", name_of(fastest->outcome), fastest->peer));
    if (fastest != nullptr && (fastest->outcome == stats::Outcome::same || fastest->outcome == stats::Outcome::unclear))
      cells.back() = fmt::format("{} ({})", name_of(fastest->outcome), fastest->peer);
    if (!row.fit) cells.back() += ", unfit";
    table.add(std::move(cells));
  }
  return table;
}

Table modes_table(const std::vector<std::string>& problems, const std::vector<ModeColumn>& columns) {
  std::vector<Table::Column> titles{{"problem"}};
  for (const ModeColumn& column : columns) titles.push_back({column.title, Align::right});
  Table table(std::move(titles));
  for (size_t i = 0; i < problems.size(); ++i) {
    std::vector<std::string> cells{problems[i]};
    for (const ModeColumn& column : columns) {
      const SpeedRow* row = column.rows.at(i);
      if (row == nullptr)
        cells.emplace_back("-");
      else if (row->mode == "pdl" && !row->overlaps)
        cells.emplace_back("in order");
      else
        cells.push_back(microseconds(row->ours) + (row->fit ? "" : ", unfit"));
    }
    table.add(std::move(cells));
  }
  return table;
}

Table bars_table(const std::vector<BarResult>& results) {
  Table table({{"bar"},
               {"rows", Align::right},
               {"mean over the fastest", Align::right},
               {"bar", Align::right},
               {"stretch", Align::right},
               {"lowest row", Align::right},
               {"floor", Align::right},
               {"state"}});
  for (const BarResult& result : results) {
    std::string lowest = "-";
    if (result.lowest != nullptr)
      lowest = ratio_text(result.lowest->fastest()->estimate, result.lowest->fastest()->interval);
    table.add({result.bar.name, std::to_string(result.rows.size()),
               result.mean ? ratio_text(result.mean->estimate, result.mean->interval) : "-",
               bar_text(result.bar.tensor_share ? result.bar.tensor_share : result.bar.mean),
               bar_text(result.bar.stretch), lowest, bar_text(result.bar.floor),
               result.why.empty() ? std::string(name_of(result.state))
                                  : fmt::format("{}: {}", name_of(result.state), result.why)});
  }
  return table;
}

json to_json(const SpeedRow& row) {
  json peers = json::object();
  for (const Against& peer : row.peers)
    peers[peer.peer] = {{"us", peer.seconds * 1e6},
                        {"derived", peer.derived},
                        {"ratio", peer.estimate},
                        {"interval", {peer.interval.lower, peer.interval.upper}},
                        {"verdict", name_of(peer.outcome)}};
  json object = {{"problem", row.problem},
                 {"contender", row.contender},
                 {"kernel", row.kernel},
                 {"us", row.ours.seconds * 1e6},
                 {"lo", row.ours.interval.lower * 1e6},
                 {"hi", row.ours.interval.upper * 1e6},
                 {"peers", std::move(peers)},
                 {"fit", row.fit}};
  if (row.flops > 0) object["tflops"] = row.flops / row.ours.seconds / 1e12;
  if (const Against* fastest = row.fastest()) object["fastest"] = fastest->peer;
  return object;
}

json to_json(const BarResult& result) {
  json object = {{"bar", result.bar.name}, {"state", name_of(result.state)}, {"rows", result.rows.size()}};
  if (!result.why.empty()) object["why"] = result.why;
  if (result.mean) {
    object["mean"] = result.mean->estimate;
    object["interval"] = {result.mean->interval.lower, result.mean->interval.upper};
  }
  if (result.lowest != nullptr) {
    object["lowest"] = result.lowest->fastest()->estimate;
    object["lowest_problem"] = result.lowest->problem;
  }
  return object;
}

}  // namespace attune::lab
