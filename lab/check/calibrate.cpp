#include "lab/check/calibrate.hpp"

#include <fmt/format.h>

#include <cmath>
#include <span>

namespace attune::lab {
namespace {

constexpr double margin = 2;

constexpr std::string_view all_shapes[] = {
    "b1 h2/1 q192 k192 d128 causal-br",
    "b1 h2/1 q128 k1024 d64",
    "b1 h2/2 q256 k40 d32",
    "b1 h2/1 q64 k2048 d80",
    "b2 h2/1 q256 k3 d16",
    "b1 h2/2 q200 k300 d64 cap20 bias=1hqk",
    "b1 h2/2 q160 k160 d64 w20,4 sink",
    "b1 h1/1 q64 k512 d256",
};

}  // namespace

Calibration calibrate(ReferenceSource& reference, cpu::Threads& threads, uint64_t seed, int repeats, int shapes) {
  Calibration calibration;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    for (const std::string_view shape : std::span(all_shapes).first(static_cast<size_t>(shapes))) {
      for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::f32}) {
        for (const InputKind kind : all_input_kinds) {
          Case c{to_string(parse_problem(fmt::format("fwd {} {}", shape, name_of(dtype)))),
                 "",
                 kind,
                 derive_seed(seed, static_cast<uint64_t>(repeat)),
                 Storage::dense,
                 std::nullopt};
          const Tensors tensors = make_inputs(parse_problem(c.problem), kind, c.seed, c.storage, threads);
          const RowChoice rows = choose_rows(tensors, {}, c.seed);
          const ReferenceRows truth = reference.rows(tensors, rows.rows);
          const Ideal ideal = ideal_rows(tensors, rows.rows, threads);
          Calibration::Entry& entry = calibration.by_dtype[dtype];
          entry.elements += static_cast<int64_t>(truth.o.size());
          const double worst = max_ulp_of_ideal(tensors, rows, truth, ideal);
          if (worst > entry.max_ulp) {
            entry.max_ulp = worst;
            entry.where = c;
          }
        }
      }
    }
  }
  return calibration;
}

double constant_from(double max_ulp_of_ideal) { return std::ceil(margin * max_ulp_of_ideal * 10) / 10; }

}  // namespace attune::lab
