#include "lab/measure/ceiling_of.hpp"

#include <algorithm>

namespace attune::lab {
namespace {

Ceiling named(const CeilingName& name) {
  Ceiling ceiling;
  ceiling.name = name.name;
  ceiling.about = name.about;
  ceiling.unit = name.unit;
  return ceiling;
}

Result measured(std::unique_ptr<Contender> contender) {
  Session session(ceiling_protocol());
  session.add(std::move(contender));
  return session.run();
}

}  // namespace

Protocol ceiling_protocol() {
  Protocol protocol;
  protocol.rounds = 7;
  protocol.samples = 5;
  protocol.budget_seconds = 2;
  protocol.remake_below_seconds = 0;  // nothing is compared, so placement needs no averaging
  return protocol;
}

Ceiling ceiling_of(const CeilingName& name, std::unique_ptr<Contender> contender,
                   const std::function<double(double)>& figure) {
  const Summary summary = measured(std::move(contender)).analysis.summaries.front();
  Ceiling ceiling = named(name);
  ceiling.value = figure(summary.seconds);
  std::tie(ceiling.lower, ceiling.upper) =
      std::minmax({figure(summary.interval.lower), figure(summary.interval.upper)});
  ceiling.clock_hz = summary.clock_hz;
  return ceiling;
}

Ceiling fastest_of(const CeilingName& name, std::unique_ptr<Contender> contender,
                   const std::function<double(double)>& figure) {
  const Result result = measured(std::move(contender));
  double fastest = result.analysis.summaries.front().seconds;
  for (const auto& round : result.measurement.recordings.front().rounds)
    for (const Sample& sample : round) fastest = std::min(fastest, sample.seconds);
  Ceiling ceiling = named(name);
  ceiling.value = ceiling.upper = figure(fastest);
  ceiling.lower = figure(result.analysis.summaries.front().seconds);
  return ceiling;
}

Ceiling absent(const CeilingName& name, std::string why) {
  Ceiling ceiling = named(name);
  ceiling.absence = std::move(why);
  return ceiling;
}

NoiseFloor noise_floor_of(const char* mode, const std::function<std::unique_ptr<Contender>()>& contender) {
  Protocol protocol;
  protocol.mode = mode;
  protocol.samples = 4;
  protocol.budget_seconds = 2;
  Session session(protocol);
  session.add(contender());
  session.add_twin(contender());
  return *session.run().analysis.noise_floor;
}

}  // namespace attune::lab
