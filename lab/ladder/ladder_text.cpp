#include "lab/ladder/ladder_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <ranges>
#include <sstream>

#include "core/error.hpp"
#include "lab/report/pages.hpp"

namespace attune::lab {
namespace {

std::string text_of(const std::optional<MeanRatio>& ratio) {
  if (!ratio) return "";
  return fmt::format("{:.2f} [{:.2f}, {:.2f}]", ratio->estimate, ratio->interval.lower, ratio->interval.upper);
}

nlohmann::json ladder_json(const MeanRatio& ratio) {
  return {{"estimate", ratio.estimate},
          {"lo", ratio.interval.lower},
          {"hi", ratio.interval.upper},
          {"coverage", ratio.interval.coverage},
          {"problems", ratio.problems}};
}

std::string reported_text(const Step& step) {
  std::string text = step.reported_us ? fmt::format("{:g} us", *step.reported_us) : "";
  if (step.reported_gain) text += fmt::format(", {:.2f}", *step.reported_gain);
  if (!step.reported.empty()) text += (text.empty() ? "" : "; ") + step.reported;
  return text;
}

constexpr std::string_view about_the_figures =
    "gain: time of the rung it is compared with over its own, the geometric mean over the set's problems. The reports' "
    "figures are\nof another card, an L4, at b1 h8 q512 d64 f16: compare what a step gained, not its time.\n";

std::string page_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) fail(ATTUNE_INVALID_ARGUMENT, "{}: cannot be read", path);
  return text.str();
}

// The rungs whose files are no longer those that were measured.
std::vector<std::string> changed_rungs(const nlohmann::json& record) {
  std::vector<std::string> changed;
  for (const auto& [subject, stamp] : ladder_stamps())
    if (freshness(record, subject, stamp) != Freshness::fresh) changed.push_back(subject);
  return changed;
}

std::string card_of(const FiledRecord& filed) { return filed.record.at("environment").value("card", std::string("?")); }

// Of every problem the newest measurement on the card of the newest record, which is the last one.
std::string measured_part(const std::vector<FiledRecord>& records) {
  std::vector<LadderProblem> problems;
  std::vector<std::string> changed, sources;
  for (const FiledRecord& filed : records | std::views::reverse) {
    if (card_of(filed) != card_of(records.back())) continue;
    const size_t before = problems.size();
    for (LadderProblem& each : ladder_problems(filed.record, filed.file))
      if (std::ranges::find(problems, each.problem, &LadderProblem::problem) == problems.end())
        problems.push_back(std::move(each));
    if (problems.size() == before) continue;
    for (std::string& rung : changed_rungs(filed.record))
      if (std::ranges::find(changed, rung) == changed.end()) changed.push_back(std::move(rung));
    sources.push_back(fmt::format("`evidence/ladder/{}`, {}", filed.file,
                                  filed.record.at("created").get<std::string>().substr(0, 10)));
  }
  std::vector<Climb> climbs;
  for (const std::string& set : predicted_sets(builtin_ladder()))
    if (Climb climb = climb_of(builtin_ladder(), set, problems); !climb.steps.empty())
      climbs.push_back(std::move(climb));
  std::string text = climb_text(climbs, true);
  if (!changed.empty()) text += fmt::format("\nChanged since they were measured: {}.\n", fmt::join(changed, ", "));
  return text +
         fmt::format("\nThe records, with every sample: {}; {}.\n", fmt::join(sources, "; "), card_of(records.back()));
}

}  // namespace

Table waterfall_table(const Climb& climb) {
  using Align = Table::Align;
  const std::string problem = climb.steps.empty() ? "" : climb.steps.front().problems.front();
  Table table({{"rung"},
               {"what changes"},
               {problem, Align::right},
               {"gain", Align::right},
               {"over"},
               {"times the library", Align::right},
               {"predicted"},
               {"came"},
               {"reports, on an L4"}});
  for (const Step& step : climb.steps) {
    const bool same_problem = step.problems.front() == problem;
    const Summary& first = step.times.front();
    table.add({step.name, step.title,
               same_problem ? duration_text(first.seconds, first.interval.lower, first.interval.upper) : "",
               text_of(step.gain), step.over, text_of(step.distance),
               step.outcome ? fmt::format("at least {:g}, {:.0f} %", step.outcome->prediction.gain,
                                          100 * step.outcome->prediction.probability)
                            : "",
               step.outcome ? std::string(name_of(step.outcome->came)) : "", reported_text(step)});
  }
  return table;
}

Table loss_table(const Climb& climb) {
  Table table({{"rung"}, {"without"}, {"time over the rung's", Table::Align::right}});
  for (const Loss& loss : climb.losses) table.add({loss.of, loss.what, text_of(loss.ratio)});
  return table;
}

std::string score_text(const PredictionScore& score) {
  if (score.scored == 0) return "No prediction can be scored.\n";
  return fmt::format(
      "Predictions: {} of {} came true, {} too close to call. Brier score {:.3f}; 0 is perfect, 0.25 is what a coin "
      "gets.\n",
      score.came_true, score.scored, score.close, score.brier);
}

std::string climb_text(const std::vector<Climb>& climbs, bool markdown) {
  std::string text;
  for (const Climb& climb : climbs) {
    const Table waterfall = waterfall_table(climb), losses = loss_table(climb);
    text += fmt::format("{}{}\n\n{}\n", markdown ? "### " : "set ", climb.set,
                        markdown ? waterfall.markdown() : waterfall.text());
    if (!climb.losses.empty()) text += (markdown ? losses.markdown() : losses.text()) + "\n";
  }
  return text + std::string(about_the_figures) + "\n" + score_text(score_of(climbs));
}

std::vector<nlohmann::json> climb_json(const std::vector<Climb>& climbs) {
  std::vector<nlohmann::json> lines;
  for (const Climb& climb : climbs) {
    for (const Step& step : climb.steps) {
      nlohmann::json& line = lines.emplace_back();
      line = {{"set", climb.set}, {"rung", step.name}, {"title", step.title}};
      for (size_t i = 0; i < step.times.size(); ++i)
        line["times"].push_back({{"problem", step.problems[i]},
                                 {"us", step.times[i].seconds * 1e6},
                                 {"lo", step.times[i].interval.lower * 1e6},
                                 {"hi", step.times[i].interval.upper * 1e6}});
      if (step.gain) {
        line["over"] = step.over;
        line["gain"] = ladder_json(*step.gain);
      }
      if (step.distance) line["times_the_library"] = ladder_json(*step.distance);
      if (step.outcome)
        line["prediction"] = {{"gain", step.outcome->prediction.gain},
                              {"probability", step.outcome->prediction.probability},
                              {"came", name_of(step.outcome->came)}};
      if (step.reported_us) line["reported_us_on_l4"] = *step.reported_us;
      if (step.reported_gain) line["reported_gain_on_l4"] = *step.reported_gain;
      if (!step.reported.empty()) line["reported"] = step.reported;
    }
    for (const Loss& loss : climb.losses)
      lines.push_back({{"set", climb.set}, {"of", loss.of}, {"without", loss.what}, {"loss", ladder_json(loss.ratio)}});
  }
  const PredictionScore score = score_of(climbs);
  nlohmann::json& last = lines.emplace_back();
  last = {{"scored", score.scored}, {"came_true", score.came_true}, {"too_close", score.close}};
  if (score.scored > 0) last["brier"] = score.brier;
  return lines;
}

std::map<std::string, std::string> make_ladder_page(const std::string& docs_folder,
                                                    const std::string& evidence_folder) {
  const std::vector<FiledRecord> records = speed_records_in(evidence_folder + "/ladder");
  const std::string part = records.empty() ? "The ladder has not been measured on a card: no record speaks for it.\n"
                                           : measured_part(records);
  const std::string name = "ladder.md";
  return {{name, with_generated(page_text(docs_folder + "/" + name), part, name)}};
}

}  // namespace attune::lab
