// The configurations of sm90/fwd_ranged as its recipe writes them, by warpgroups and keys per block.
#pragma once

#define ATTUNE_RANGED_CONFIG(warpgroups_, block_n_, k_, v_, q_, consumer, producer, turns_) \
  ATTUNE_RANGED_CROWD(warpgroups_, block_n_, k_, v_, q_, consumer, producer, turns_, 1)
#define ATTUNE_RANGED_CROWD(warpgroups_, block_n_, k_, v_, q_, consumer, producer, turns_, ctas)                    \
  (.warpgroups = warpgroups_, .value_parts = 1, .block_n = block_n_, .stages_k = k_, .stages_v = v_, .q_slots = q_, \
   .consumer_registers = consumer, .producer_registers = producer, .turns = turns_, .ctas_per_sm = ctas)
// Two CTAs on an SM.
#define ATTUNE_RANGED_PAIR(block_n_, k_, v_, q_) ATTUNE_RANGED_CROWD(1, block_n_, k_, v_, q_, 208, 40, Turns::none, 2)

#define ATTUNE_D64_2X128 ATTUNE_RANGED_CONFIG(2, 128, 3, 3, 2, 232, 40, Turns::none)
#define ATTUNE_D64_2X64 ATTUNE_RANGED_CONFIG(2, 64, 4, 4, 2, 232, 40, Turns::none)
#define ATTUNE_D64_1X64 ATTUNE_RANGED_PAIR(64, 3, 3, 2)
#define ATTUNE_D128_2X128 ATTUNE_RANGED_CONFIG(2, 128, 3, 2, 2, 232, 40, Turns::products)
#define ATTUNE_D128_2X64 ATTUNE_RANGED_CONFIG(2, 64, 4, 4, 2, 232, 40, Turns::none)
#define ATTUNE_D128_1X64 ATTUNE_RANGED_PAIR(64, 2, 2, 2)
#define ATTUNE_D192_2X112 ATTUNE_RANGED_CONFIG(2, 112, 2, 2, 1, 232, 40, Turns::none)
#define ATTUNE_D192_2X80 ATTUNE_RANGED_CONFIG(2, 80, 2, 2, 1, 232, 40, Turns::none)
#define ATTUNE_D192_1X64 ATTUNE_RANGED_CONFIG(1, 64, 3, 3, 1, 240, 40, Turns::none)
#define ATTUNE_D256_2X64 ATTUNE_RANGED_CONFIG(2, 64, 3, 2, 1, 232, 40, Turns::none)
#define ATTUNE_D256_1X64 ATTUNE_RANGED_CONFIG(1, 64, 2, 2, 1, 240, 40, Turns::none)

// Where scores have terms, which take shared memory.
#define ATTUNE_D64_1X64_TERMS ATTUNE_RANGED_PAIR(64, 3, 3, 2)
#define ATTUNE_D128_2X64_TERMS ATTUNE_RANGED_CONFIG(2, 64, 3, 3, 2, 232, 40, Turns::none)
#define ATTUNE_D128_1X64_TERMS ATTUNE_RANGED_PAIR(64, 2, 2, 1)
#define ATTUNE_D256_2X32 ATTUNE_RANGED_CONFIG(2, 32, 3, 3, 1, 232, 40, Turns::none)
#define ATTUNE_D192_1X48 ATTUNE_RANGED_CONFIG(1, 48, 3, 3, 1, 240, 40, Turns::none)

// Two warpgroups share the columns of O.
#define ATTUNE_D512_2X32                                                                         \
  (.warpgroups = 2, .value_parts = 2, .block_n = 32, .stages_k = 2, .stages_v = 2, .q_slots = 1, \
   .consumer_registers = 232, .producer_registers = 40, .turns = Turns::none, .ctas_per_sm = 1)

#define ATTUNE_RANGED_TERMS(dtype_, qk, v, mask_, scores_, tile_, listed_, config)                                   \
  ATTUNE_EMULATED(sm90_fwd_ranged,                                                                                   \
                  (.dtype = Dtype::dtype_, .dim_qk = qk, .dim_v = v, .mask = Mask::mask_, .scores = Scores::scores_, \
                   .tile = TermTile::tile_, .listed = listed_),                                                      \
                  config)
#define ATTUNE_RANGED(dtype_, qk, v, mask_, scores_, listed_, config) \
  ATTUNE_RANGED_TERMS(dtype_, qk, v, mask_, scores_, none, listed_, config)
