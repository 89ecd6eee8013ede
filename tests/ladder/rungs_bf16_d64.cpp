#define ELEMENT EmulatedBfloat16
#define D 64
#define RUNGS rungs_bf16_d64
#include "tests/ladder/rungs_of_one_type.hpp"
