// The level of the tile unit: blocks and few rows of pairs in tiles, all else in vectors.
#pragma once

#include "cpu/level/tile_forward.inl.hpp"
#include "cpu/level/tile_rows.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

size_t tile_scratch_bytes(const Problem& p) {
  const size_t blocks = pair_scratch_bytes(p), rows = tile_rows_scratch_bytes(p);
  return blocks > rows ? blocks : rows;
}

constexpr Level tile_level_table(const char* name) {
  Level level = pair_level_table(name);
  level.scratch_bytes = tile_scratch_bytes;
  level.few_rows = most_rows_of_row_path;
  level.forward_rows = forward_tile_rows;
  level.works = tiles_work;
  return level;
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
