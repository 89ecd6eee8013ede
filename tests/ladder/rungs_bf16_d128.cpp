#define ELEMENT EmulatedBfloat16
#define D 128
#define RUNGS rungs_bf16_d128
#include "tests/ladder/rungs_of_one_type.hpp"
