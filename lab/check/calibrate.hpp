// How large Ideal's own errors get: the constants of tests/accuracy.toml come from here.
#pragma once

#include <cstdint>
#include <map>

#include "cpu/threads.hpp"
#include "lab/check/checker.hpp"

namespace attune::lab {

struct Calibration {
  struct Entry {
    double max_ulp = 0;  // Ideal's largest
    Case where;
    int64_t elements = 0;  // that were compared
  };
  std::map<Dtype, Entry> by_dtype;
};

// Every kind of input on shapes that differ in length, head dim and mask, `repeats` times with seeds of their own.
// `shapes`: how many of the shapes; 8 is all of them.
Calibration calibrate(ReferenceSource& reference, cpu::Threads& threads, uint64_t seed, int repeats, int shapes = 8);

// The constant that belongs to it: twice Ideal's largest error, in steps of 0.1. A good kernel differs from Ideal in
// the order of its sums and in where it rounds, which costs less than that; a wrong one is off by tens of units.
double constant_from(double max_ulp_of_ideal);

}  // namespace attune::lab
