// What the ceilings of GPU and CPU share: a contender measured alone, and a figure made of its time.
#pragma once

#include <functional>
#include <memory>

#include "lab/measure/ceilings.hpp"

namespace attune::lab {

// `figure` makes a value of the seconds of a call, larger or smaller for less time; the median over rounds is taken.
Ceiling ceiling_of(const CeilingName& name, std::unique_ptr<Contender> contender,
                   const std::function<double(double seconds)>& figure);

// Of the fastest sample: on a CPU that others use too, the slower ones tell of the others.
Ceiling fastest_of(const CeilingName& name, std::unique_ptr<Contender> contender,
                   const std::function<double(double seconds)>& figure);

Ceiling absent(const CeilingName& name, std::string why);

// `contender` is called twice, for a contender and its twin.
NoiseFloor noise_floor_of(const char* mode, const std::function<std::unique_ptr<Contender>()>& contender);

}  // namespace attune::lab
