// The same mathematical problem in other clothes: batches, heads or keys in another order, or in other strides.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lab/check/rows.hpp"

namespace attune::lab {

// Place i of the copy is taken from place [i] of the original.
struct Remap {
  std::vector<int64_t> batches, heads_q, heads_kv;
  std::vector<int64_t> keys;  // in every sequence alike; anything but the identity needs sequences of full length
};
Remap identity_remap(const Problem& problem);

// `target` gives the strides and, through seq_k, the number of keys; everything else equals the problem of `original`.
Tensors remapped(const Tensors& original, const Problem& target, Storage storage, const Remap& remap);

// "" if the rows of the copy are bit for bit those of the original they were taken from, else where they first differ.
std::string first_difference(const Tensors& original, const Tensors& copy, const Remap& remap);

}  // namespace attune::lab
