#include "lab/report/pages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/error.hpp"
#include "core/problem.hpp"
#include "jit/paths.hpp"
#include "lab/evidence/record.hpp"
#include "lab/evidence/run_stamps.hpp"
#include "lab/output.hpp"
#include "lab/report/bars.hpp"
#include "lab/report/models_page.hpp"
#include "lab/report/speed_text.hpp"
#include "lab/report/svg_chart.hpp"
#include "lab/sets.hpp"

namespace attune::lab {
namespace {

using nlohmann::json;

constexpr std::string_view begin_marker = "<!-- attune report: begin -->\n";
constexpr std::string_view end_marker = "<!-- attune report: end -->";

// What each problem runs today on a typical card of an architecture.
class Today {
 public:
  const RunStamps& on(const std::string& arch, const std::vector<std::string>& problems) {
    const auto known = stamps_.find(arch);
    if (known != stamps_.end()) return known->second;
    const auto& devices = gpu::typical_devices();
    const auto device = std::ranges::find_if(devices, [&](const auto& typical) { return typical.arch() == arch; });
    if (device == devices.end()) return stamps_[arch];
    return stamps_[arch] =
               stamps_of_problems(problems, "", context_, static_cast<int>(std::distance(devices.begin(), device)));
  }

 private:
  static attune_options one_thread() {
    attune_options options{};
    options.struct_size = sizeof options;
    options.threads = 1;
    return options;
  }
  Context context_{one_thread(), std::make_unique<gpu::Runtime>(gpu::typical_devices())};
  std::map<std::string, RunStamps> stamps_;
};

bool is_fresh(const SpeedRow& row, const json& record, const RunStamps& today) {
  const auto now = today.subjects.find(row.problem);
  if (row.subjects.empty() || now == today.subjects.end() || now->second != row.subjects) return false;
  return std::ranges::all_of(row.subjects, [&](const std::string& subject) {
    return freshness_of_time(record, subject, today.stamps.at(subject)) == Freshness::fresh;
  });
}

// What is shown beside the rows with peers: a section of text, and the records it comes from.
struct Section {
  std::string text;
  std::vector<const FiledRecord*> sources;
};

std::string generated_part(const FreshRows& fresh, const Section& section, const std::string& chart_file,
                           const std::string& chart_alt) {
  if (fresh.rows.empty()) return "No measurement speaks for the kernels of today.\n";
  std::string text = fmt::format("![{}]({})\n\n### Bars\n\n{}\n", chart_alt, chart_file,
                                 bars_table(compare_with_bars(fresh.rows, bars())).markdown());
  text += fmt::format(
      "### Every problem\n\nover: time(peer) / time(Attune) inside rounds, with its interval; above 1 Attune is "
      "faster. "
      "recorded: cuDNN's time of the\nrun by the ratio that was recorded for the problem.\n\n{}\n",
      speed_table(fresh.rows).markdown());
  if (!fresh.stale.empty()) {
    text += "Not shown, because the kernels have changed since they were measured:\n\n";
    for (const std::string& problem : fresh.stale) text += fmt::format("- `{}`\n", problem);
    text += "\n";
  }
  std::vector<const FiledRecord*> sources = fresh.sources;
  sources.insert(sources.end(), section.sources.begin(), section.sources.end());
  return text + section.text + "Records, with every sample:\n\n" + sources_text(sources);
}

// The problems of a set measured without peers: steady, with cold caches, and as launches that overlap.
Section other_modes(const std::vector<FiledRecord>& records, const std::vector<std::string>& problems) {
  struct Way {
    const char *title, *mode, *words;
  };
  constexpr Way ways[] = {
      {"us", "steady", ""}, {"us, cold L2", "cold", ""}, {"us, overlapping", "pdl", " overlap kvready"}};
  Section section;
  std::vector<FreshRows> found;
  found.reserve(std::size(ways));  // columns point into it
  std::vector<ModeColumn> columns;
  bool any = false;
  for (const Way& way : ways) {
    std::vector<std::string> texts;
    for (const std::string& problem : problems) texts.push_back(to_string(parse_problem(problem + way.words)));
    found.push_back(
        fresh_rows(records, texts, [&](const SpeedRow& row) { return row.peers.empty() && row.mode == way.mode; }));
    columns.push_back({way.title, {}});
    section.sources.insert(section.sources.end(), found.back().sources.begin(), found.back().sources.end());
    for (const std::string& text : texts) {
      const auto row = std::ranges::find(found.back().rows, text, &SpeedRow::problem);
      columns.back().rows.push_back(row == found.back().rows.end() ? nullptr : &*row);
    }
    any = any || !found.back().rows.empty();
  }
  if (any)
    section.text = fmt::format(
        "### Cold caches, and launches that overlap\n\nAttune alone in its rounds, each column in a run of its own; "
        "there are no bars. us: as above, without peers beside it. cold L2: every\nlaunch finds its tensors outside "
        "the "
        "L2 cache. overlapping: calls with `overlap kvready`, each of which starts while the one before it\nis still "
        "ending; in order: its kernel does not.\n\n{}\n",
        modes_table(problems, columns).markdown());
  return section;
}

ChartSeries& series_named(ChartPanel& panel, const std::string& name, bool dashed) {
  for (ChartSeries& series : panel.series)
    if (series.name == name) return series;
  panel.series.push_back({name, dashed, std::vector<std::optional<ChartPoint>>(panel.labels.size())});
  return panel.series.back();
}

// One panel over the lengths of the rows that `covers` says yes to; `figure` makes a value of seconds.
template <typename Covers, typename Figure>
ChartPanel panel_of(const std::string& title, const std::vector<SpeedRow>& rows, Covers&& covers, Figure&& figure) {
  std::map<int64_t, const SpeedRow*> by_length;
  for (const SpeedRow& row : rows)
    if (const Problem problem = parse_problem(row.problem); covers(problem)) by_length[problem.seq_q] = &row;
  ChartPanel panel;
  panel.title = title;
  for (const auto& [length, row] : by_length) panel.labels.push_back(std::to_string(length));
  size_t at = 0;
  for (const auto& [length, row] : by_length) {
    const auto point = [&](double seconds, double lower, double upper) {
      const auto [low, high] = std::minmax({figure(*row, lower), figure(*row, upper)});
      return ChartPoint{figure(*row, seconds), low, high};
    };
    const Summary& ours = row->ours;
    series_named(panel, "Attune", false).points[at] = point(ours.seconds, ours.interval.lower, ours.interval.upper);
    for (const Against& peer : row->peers)
      series_named(panel, peer.derived ? peer.peer + " (recorded)" : peer.peer, peer.derived).points[at] =
          point(peer.seconds, peer.seconds, peer.seconds);
    ++at;
  }
  return panel;
}

bool is_causal(const Problem& problem) { return problem.causal != Causal::none; }

Chart performance_chart(const std::vector<SpeedRow>& rows) {
  Chart chart{"Forward, bf16, 16384 tokens, 2048 channels", "sequence length", "TFLOP/s", 2, {}};
  for (const int64_t dim : {64, 128, 256})
    for (const bool causal : {false, true})
      chart.panels.push_back(panel_of(
          fmt::format("head dimension {}, {}", dim, causal ? "causal" : "full"), rows,
          [&](const Problem& p) {
            return p.dtype == Dtype::bf16 && p.dim_qk == dim && p.batch * p.seq_q == 16384 && is_causal(p) == causal;
          },
          [](const SpeedRow& row, double seconds) { return row.flops / seconds / 1e12; }));
  return chart;
}

Chart latency_chart(const std::vector<SpeedRow>& rows) {
  Chart chart{"Forward, f16, one sequence, 8 heads of 64", "sequence length", "microseconds", 2, {}};
  for (const bool causal : {false, true})
    chart.panels.push_back(panel_of(
        causal ? "causal" : "full", rows,
        [&](const Problem& p) { return p.batch == 1 && p.heads_q == 8 && p.dim_qk == 64 && is_causal(p) == causal; },
        [](const SpeedRow&, double seconds) { return seconds * 1e6; }));
  return chart;
}

struct Page {
  const char *name, *set, *alt;
  Chart (*chart)(const std::vector<SpeedRow>&);
  Section (*section)(const std::vector<FiledRecord>&, const std::vector<std::string>&);
};
constexpr Page pages[] = {
    {"performance", "prefill", "TFLOP/s over sequence length, Attune and its peers", performance_chart,
     [](const std::vector<FiledRecord>&, const std::vector<std::string>&) { return Section(); }},
    {"latency", "latency", "microseconds over sequence length, Attune and its peers", latency_chart, other_modes},
};

}  // namespace

std::string sources_text(const std::vector<const FiledRecord*>& sources) {
  std::set<std::string> lines;
  for (const FiledRecord* source : sources) {
    const json& environment = source->record.at("environment");
    const auto fact = [&](const char* name) { return environment.value(name, std::string("?")); };
    lines.insert(fmt::format("- `evidence/{}`: {}, {}, driver {}{}\n", source->file,
                             source->record.at("created").get<std::string>().substr(0, 10), fact("card"),
                             fact("driver"), environment.contains("torch") ? ", torch " + fact("torch") : ""));
  }
  std::string text;
  for (const std::string& line : lines) text += line;
  return text;
}

std::vector<FiledRecord> speed_records_in(const std::string& folder) {
  std::vector<FiledRecord> records;
  for (const std::string& path : jit::matches(folder + "/speed-*.json")) {
    json record = load_record(path);
    if (record.at("kind") == "speed") records.push_back({path.substr(path.rfind('/') + 1), std::move(record)});
  }
  std::ranges::sort(records, {}, [](const FiledRecord& filed) {
    return std::pair(filed.record.at("created").get<std::string>(), filed.file);
  });
  return records;
}

FreshRows fresh_rows(const std::vector<FiledRecord>& records, const std::vector<std::string>& problems,
                     const RowFilter& counts) {
  std::map<std::string, std::pair<SpeedRow, const FiledRecord*>> newest;
  for (const FiledRecord& filed : records)
    for (SpeedRow& row : speed_rows(filed.record, problems)) {
      if (!counts(row)) continue;
      const std::string problem = row.problem;
      newest[problem] = {std::move(row), &filed};
    }
  std::vector<std::string> measured;
  for (const std::string& problem : problems)
    if (newest.contains(problem)) measured.push_back(problem);
  FreshRows fresh;
  Today today;
  for (const std::string& problem : measured) {
    auto& [row, filed] = newest[problem];
    const std::string arch = filed->record.at("environment").value("architecture", std::string());
    if (is_fresh(row, filed->record, today.on(arch, measured))) {
      fresh.rows.push_back(std::move(row));
      fresh.sources.push_back(filed);
    } else {
      fresh.stale.push_back(problem);
    }
  }
  return fresh;
}

std::string with_generated(const std::string& page, const std::string& generated, const std::string& name) {
  const size_t begin = page.find(begin_marker), end = page.find(end_marker);
  if (begin == std::string::npos || end == std::string::npos || end < begin)
    fail(ATTUNE_INVALID_ARGUMENT, "{}: needs a line '{}' and, after it, one '{}'", name,
         begin_marker.substr(0, begin_marker.size() - 1), end_marker);
  return page.substr(0, begin + begin_marker.size()) + generated + page.substr(end);
}

std::map<std::string, std::string> make_pages(const std::string& docs_folder, const std::string& evidence_folder) {
  const std::vector<FiledRecord> records = speed_records_in(evidence_folder);
  std::map<std::string, std::string> files;
  for (const Page& page : pages) {
    const std::vector<std::string> problems = find_set(page.set).problems;
    const FreshRows fresh = fresh_rows(records, problems);
    const std::string name = fmt::format("{}.md", page.name), chart = fmt::format("{}.svg", page.name);
    files[name] = with_generated(text_of_file(docs_folder + "/" + name),
                                 generated_part(fresh, page.section(records, problems), chart, page.alt), name);
    if (!fresh.rows.empty()) files[chart] = svg_of(page.chart(fresh.rows));
  }
  files.merge(make_models_page(records, docs_folder));
  return files;
}

}  // namespace attune::lab
