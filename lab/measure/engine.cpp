#include "lab/measure/engine.hpp"

#include <algorithm>
#include <cmath>
#include <deque>

#include "core/error.hpp"
#include "lab/stats/random.hpp"
#include "lab/stats/summary.hpp"

namespace attune::lab {
namespace {

// Batches thrown away when the machine turns to another contender: the first one finds the other's data in the caches.
constexpr int lead_in_batches = 1;

// Six significant digits: finer than any timer here, and files of evidence half as long. Rounded before anything is
// concluded, so that the conclusions follow from what is stored.
double as_stored(double value) {
  if (value <= 0) return value;
  const double scale = std::pow(10.0, 5 - std::floor(std::log10(value)));
  return std::round(value * scale) / scale;
}

}  // namespace

struct Session::Entry {
  std::unique_ptr<Contender> contender;
  Recording recording;
  std::string beside;             // of a probe: whose batches its own last as long as
  double batch_wall_seconds = 0;  // what one sample() costs, set-up of the batch included
};

Session::Session(Protocol protocol, Clock& clock, ProcessCpusSource process)
    : protocol_(std::move(protocol)), clock_(clock), process_(std::move(process)) {
  check(protocol_);
}

Session::~Session() = default;

void Session::add(std::unique_ptr<Contender> contender) {
  append(std::move(contender), entries_.empty() ? Role::baseline : Role::contender);
}

void Session::add_probe(std::unique_ptr<Contender> probe, std::string_view beside) {
  if (find(beside) == nullptr)
    fail(ATTUNE_INVALID_ARGUMENT, "probe '{}': there is no contender '{}' to measure it beside", probe->name(), beside);
  append(std::move(probe), Role::probe);
  entries_.back().beside = beside;
}

void Session::append(std::unique_ptr<Contender> contender, Role role) {
  if (find(contender->name()) != nullptr)
    fail(ATTUNE_INVALID_ARGUMENT, "two contenders are named '{}'", contender->name());
  Entry entry;
  entry.recording.name = contender->name();
  entry.recording.role = role;
  entry.contender = std::move(contender);
  entries_.push_back(std::move(entry));
}

Session::Entry* Session::find(std::string_view name) {
  for (Entry& entry : entries_)
    if (entry.recording.name == name) return &entry;
  return nullptr;
}

void Session::add_twin(std::unique_ptr<Contender> twin) {
  if (entries_.empty()) fail(ATTUNE_INVALID_ARGUMENT, "the baseline is added before its twin");
  for (const Entry& other : entries_)
    if (other.recording.role == Role::twin) fail(ATTUNE_INVALID_ARGUMENT, "the baseline has a twin already");
  Entry entry;
  entry.recording.name = entries_.front().recording.name + " (A/A)";
  entry.recording.role = Role::twin;
  entry.contender = std::move(twin);
  entries_.push_back(std::move(entry));
}

Result Session::run(const ProgressCallback& progress) {
  if (entries_.empty()) fail(ATTUNE_INVALID_ARGUMENT, "nothing to measure: no contender was added");
  progress_ = progress;
  seeds_drawn_ = 0;
  last_visited_ = nullptr;
  expected_seconds_ = choice_seconds_ = 0;
  begin_ = clock_.now();
  const uint64_t data_seed = next_seed();
  for (Entry& entry : entries_)
    if (entry.recording.role != Role::probe) prepare(entry, protocol_.sample_seconds, data_seed);
  // Only now: making data is work for all CPUs. However the run ends, threads may then run where they could before.
  std::unique_ptr<ProcessCpus> process = protocol_.quiet_cpus > 0 ? process_() : nullptr;
  if (process && static_cast<size_t>(protocol_.quiet_cpus) >= process->usable().size()) process.reset();
  if (process) {
    const double begin = clock_.now();
    choose_cpus(*process);
    choice_seconds_ = clock_.now() - begin;
  }
  for (Entry& entry : entries_)
    if (entry.recording.role != Role::probe) warm_up(entry);
  for (Entry& entry : entries_) {
    if (entry.recording.role != Role::probe) continue;
    prepare(entry, std::max(protocol_.sample_seconds, find(entry.beside)->batch_wall_seconds), data_seed);
    warm_up(entry);
  }
  samples_per_round_ = affordable_samples();
  double round_seconds = choice_seconds_;
  for (const Entry& entry : entries_)
    round_seconds += entry.batch_wall_seconds * (samples_per_round_ + 2 * lead_in_batches);
  expected_seconds_ = clock_.now() - begin_ + protocol_.rounds * round_seconds;

  Result result;
  for (int round = 0; round < protocol_.rounds; ++round) {
    if (process) result.measurement.cpus.push_back(choose_cpus(*process));
    measure_round(round);
  }
  result.measurement.protocol = protocol_;
  result.measurement.samples_per_round = samples_per_round_;
  result.measurement.elapsed_seconds = clock_.now() - begin_;
  for (Entry& entry : entries_) {
    entry.recording.facts = entry.contender->facts();
    result.measurement.recordings.push_back(entry.recording);
  }
  result.analysis = analyse(result.measurement);
  return result;
}

void Session::prepare(Entry& entry, double sample_seconds, uint64_t data_seed) {
  report(Progress::Phase::prepare, entry);
  entry.contender->prepare(sample_seconds, data_seed);
  entry.recording.rounds.assign(protocol_.rounds, {});
}

void Session::warm_up(Entry& entry) {
  report(Progress::Phase::warm_up, entry);
  std::deque<double> latest;
  const double begin = clock_.now();
  int batches = 0;
  entry.recording.settled = false;
  do {
    latest.push_back(entry.contender->sample().seconds);
    ++batches;
    if (static_cast<int>(latest.size()) > protocol_.warm_up_batches) latest.pop_front();
    if (static_cast<int>(latest.size()) == protocol_.warm_up_batches) {
      const auto [fastest, slowest] = std::minmax_element(latest.begin(), latest.end());
      entry.recording.settled = *slowest <= *fastest * (1 + protocol_.warm_up_agreement);
    }
  } while (!entry.recording.settled && clock_.now() - begin < protocol_.warm_up_seconds);
  const std::vector<double> seconds(latest.begin(), latest.end());
  entry.batch_wall_seconds = (clock_.now() - begin) / batches;
  entry.recording.remade = stats::median(seconds) < protocol_.remake_below_seconds;
}

// Settled before the first round from the cost of a batch alone, never from what the samples say.
int Session::affordable_samples() const {
  if (protocol_.budget_seconds <= 0) return protocol_.samples;
  double batch_of_all = 0;
  for (const Entry& entry : entries_) batch_of_all += entry.batch_wall_seconds;
  const double left = protocol_.budget_seconds - (clock_.now() - begin_) - protocol_.rounds * choice_seconds_;
  const double batches = left / (protocol_.rounds * std::max(batch_of_all, 1e-9)) - 2 * lead_in_batches;
  return static_cast<int>(std::clamp(std::floor(batches), 1.0, static_cast<double>(protocol_.samples)));
}

// In view of the probe alone, never of samples: the round that runs there has none yet.
std::vector<int> Session::choose_cpus(ProcessCpus& process) {
  last_visited_ = nullptr;  // another CPU has other caches
  return confine_to_quickest(process, protocol_.quiet_cpus);
}

void Session::measure_round(int round) {
  std::vector<Entry*> order;
  for (Entry& entry : entries_) order.push_back(&entry);
  stats::Random(next_seed()).shuffle(order);
  const int out = (samples_per_round_ + 1) / 2;
  for (Entry* entry : order) visit(*entry, round, out);
  std::reverse(order.begin(), order.end());
  for (Entry* entry : order) visit(*entry, round, samples_per_round_ - out);
  if (round + 1 == protocol_.rounds) return;
  stats::Random(next_seed()).shuffle(order);
  const uint64_t data_seed = next_seed();
  for (Entry* entry : order) {
    if (!entry->recording.remade) continue;
    report(Progress::Phase::rounds, *entry, round);
    entry->contender->remake(data_seed);
    last_visited_ = nullptr;
  }
}

void Session::visit(Entry& entry, int round, int samples) {
  if (samples == 0) return;
  report(Progress::Phase::rounds, entry, round);
  if (last_visited_ != &entry)
    for (int i = 0; i < lead_in_batches; ++i) entry.contender->sample();
  last_visited_ = &entry;
  for (int i = 0; i < samples; ++i) {
    report(Progress::Phase::rounds, entry, round);
    const Sample sample = entry.contender->sample();
    entry.recording.rounds[round].push_back({as_stored(sample.seconds), as_stored(sample.clock_hz)});
  }
}

void Session::report(Progress::Phase phase, const Entry& entry, int round) {
  if (!progress_) return;
  progress_({phase, entry.recording.name, round, protocol_.rounds, clock_.now() - begin_, expected_seconds_});
}

uint64_t Session::next_seed() { return stats::Random(protocol_.seed * 0x9e3779b97f4a7c15u + ++seeds_drawn_).bits(); }

}  // namespace attune::lab
