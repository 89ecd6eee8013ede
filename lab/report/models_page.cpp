#include "lab/report/models_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "lab/model_sets.hpp"
#include "lab/output.hpp"
#include "lab/report/bars.hpp"
#include "lab/report/ratio_chart.hpp"
#include "lab/report/speed_text.hpp"
#include "lab/stats/table.hpp"

namespace attune::lab {
namespace {

using nlohmann::json;

constexpr uint64_t headline_seed = 1;

constexpr std::string_view about_the_page =
    R"(# The attention calls of models

The set `models` holds what models people run ask of one GPU: prefill and decoding of language models, with windows,
softcap, sinks, packing and padding, encoders, vision, diffusion, structure predictors. This page is made by
`attune report` from one run of

    attune bench --set models --peers default,cudnn,flash,efficient,flex,varlen --evidence evidence

Each call is measured in the same rounds as everything in torch that can express it:

- `default`, `cudnn`, `flash`, `efficient` are torch's SDPA. It gets `is_causal` where that says it exactly, and else the
  mask a user would write, made outside the timing: boolean, or the bias in q's type with -inf where a key is hidden.
- `varlen` is `varlen_attn`, on packed sequences and on windows.
- `flex` is FlexAttention, compiled, where a call has a window, softcap, sinks or packed sequences.

All are compared with float64 before they are timed, and who is wrong is not. Lengths (`used-k`, `var`) and padding
(`mask=b11k`) are those of a batch as it is served: from a sixteenth of the longest to the longest, which one sequence
has; padding is on the left of causal calls. [measuring.md](measuring.md#lengths-and-padding) says how they are drawn.

When the record of 19 November 2026 was made, the launches of one call overlapped. They no longer do
([notebook](notebook.md#2-on-a-card)), which costs calls of several launches (packed, padded, decoding) a microsecond or
two that these figures do not show yet.

)";

std::string call_text(const std::string& problem) { return problem.substr(problem.find(' ') + 1); }

// "default (cudnn)", or the peer where that says it.
std::string peer_text(const Against& peer) {
  std::string backend = peer.backend.substr(0, peer.backend.find("_ATTENTION"));
  std::ranges::transform(backend, backend.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return backend.empty() || backend == peer.peer ? peer.peer : fmt::format("{} ({})", peer.peer, backend);
}

std::string time_text(double seconds) { return fmt::format("{:.{}f}", seconds * 1e6, seconds < 100e-6 ? 2 : 1); }

std::vector<const Against*> fastest_of(const std::vector<SpeedRow>& rows) {
  std::vector<const Against*> fastest;
  for (const SpeedRow& row : rows)
    if (const Against* peer = row.fastest()) fastest.push_back(peer);
  return fastest;
}

Table models_table(const std::vector<SpeedRow>& rows) {
  std::vector<std::string> names;
  for (const SpeedRow& row : rows)
    for (const Against& peer : row.peers)
      if (std::ranges::find(names, peer.peer) == names.end()) names.push_back(peer.peer);
  using Align = Table::Align;
  std::vector<Table::Column> columns{{"model"}, {"call"}, {"kernel"}, {"Attune, us", Align::right}};
  for (const std::string& name : names) columns.push_back({name + ", us", Align::right});
  for (const char* name : {"fastest peer", "times as fast", "verdict"}) columns.push_back({name});
  Table table(std::move(columns));
  for (const SpeedRow& row : rows) {
    std::vector<std::string> cells{model_of(row.problem), call_text(row.problem), row.kernel,
                                   fmt::format("{} [{}, {}]", time_text(row.ours.seconds),
                                               time_text(row.ours.interval.lower), time_text(row.ours.interval.upper))};
    for (const std::string& name : names) {
      const Against* peer = row.find(name);
      cells.push_back(peer == nullptr ? "-" : time_text(peer->seconds));
    }
    const Against* fastest = row.fastest();
    cells.push_back(fastest == nullptr ? "-" : peer_text(*fastest));
    cells.push_back(fastest == nullptr ? "-" : ratio_text(fastest->estimate, fastest->interval));
    cells.push_back((fastest == nullptr ? "-" : std::string(name_of(fastest->outcome))) + (row.fit ? "" : ", unfit"));
    table.add(std::move(cells));
  }
  return table;
}

RatioChart models_chart(const std::vector<SpeedRow>& rows) {
  RatioChart chart{"Calls of models on an H200: Attune beside the fastest thing in torch",
                   "time of the fastest peer / time of Attune; to the right of 1 Attune is faster",
                   {}};
  for (const SpeedRow& row : rows)
    if (const Against* fastest = row.fastest())
      chart.rows.push_back({model_of(row.problem), fmt::format("{:.2f}, {}", fastest->estimate, peer_text(*fastest)),
                            fastest->estimate, fastest->interval, fastest->outcome});
  return chart;
}

std::string list_of(const std::vector<std::string>& problems, std::string_view why) {
  if (problems.empty()) return "";
  std::string text = fmt::format("{}:\n\n", why);
  for (const std::string& problem : problems) text += fmt::format("- `{}`\n", problem);
  return text + "\n";
}

std::vector<Bar> bars_of_models() {
  std::vector<Bar> list = bars();
  std::erase_if(list, [](const Bar& bar) { return bar.set != "models"; });
  return list;
}

std::string models_page(const FreshRows& fresh, const FiledRecord& record) {
  std::vector<std::string> missing;
  for (const std::string& problem : models().problems)
    if (std::ranges::find(fresh.rows, problem, &SpeedRow::problem) == fresh.rows.end() &&
        std::ranges::find(fresh.stale, problem) == fresh.stale.end())
      missing.push_back(problem);
  std::string text(about_the_page);
  const std::string headline = models_headline(fresh.rows);
  if (headline.empty())
    text += "No measurement speaks for the kernels of today.\n\n";
  else
    text += fmt::format(
        "**{}**\n\n![times of the fastest peer over Attune's, a row for each call](models.svg)\n\n## Every call\n\n"
        "times as fast: time(fastest peer) / time(Attune) inside rounds, with its exact interval; -: not expressed by "
        "this peer, or wrong.\n\n{}\n",
        headline, models_table(fresh.rows).markdown());
  if (const std::vector<BarResult> results = compare_with_bars(fresh.rows, bars_of_models()); !results.empty())
    text += fmt::format("## Bars\n\n{}\n", bars_table(results).markdown());
  text += list_of(fresh.stale, "Not shown, because the kernels have changed since they were measured");
  text += list_of(missing, "Not in the record");
  return text + "Record, with every sample:\n\n" + sources_text({&record});
}

}  // namespace

const FiledRecord* record_of_models(const std::vector<FiledRecord>& records) {
  const std::vector<std::string> problems = models().problems;
  const FiledRecord* newest = nullptr;
  for (const FiledRecord& filed : records) {
    const auto measured = std::ranges::count_if(filed.record.at("results"), [&](const json& result) {
      return std::ranges::find(problems, result.at("problem").get<std::string>()) != problems.end();
    });
    if (2 * static_cast<size_t>(measured) > problems.size()) newest = &filed;
  }
  return newest;
}

std::string models_headline(const std::vector<SpeedRow>& rows) {
  const std::vector<const Against*> fastest = fastest_of(rows);
  if (fastest.empty()) return "";
  std::vector<std::vector<double>> ratios;
  for (const Against* peer : fastest) ratios.push_back(peer->ratios);
  const stats::TableRatio mean = stats::geometric_mean_ratio(ratios, headline_seed);
  const auto faster = std::ranges::count(fastest, stats::Outcome::faster, &Against::outcome);
  const size_t calls = models().problems.size();
  const std::string of = fastest.size() == calls ? "" : fmt::format(" over the {} that were measured", fastest.size());
  return fmt::format(
      "Of {} calls of real models, {} are faster than the fastest thing in torch, geometric mean {:.2f} [{:.2f}, "
      "{:.2f}]{}.",
      calls, faster, mean.estimate, mean.interval.lower, mean.interval.upper, of);
}

std::map<std::string, std::string> make_models_page(const std::vector<FiledRecord>& records,
                                                    const std::string& docs_folder) {
  std::map<std::string, std::string> files;
  std::string in_readme;
  if (const FiledRecord* record = record_of_models(records)) {
    const std::vector<FiledRecord> alone{*record};
    const FreshRows fresh = fresh_rows(alone, models().problems, [](const SpeedRow&) { return true; });
    files["models.md"] = models_page(fresh, *record);
    if (const std::string headline = models_headline(fresh.rows); !headline.empty()) {
      files["models.svg"] = svg_of(models_chart(fresh.rows));
      in_readme = fmt::format(
          "**{}**\n[Every call with its interval](docs/models.md).\n\n![times of the fastest thing in torch over "
          "Attune's, a row for each call](docs/models.svg)\n",
          headline);
    }
  }
  const std::string readme = "../README.md";
  files[readme] = with_generated(text_of_file(docs_folder + "/" + readme), in_readme, "README.md");
  return files;
}

}  // namespace attune::lab
