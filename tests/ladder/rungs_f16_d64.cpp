#define ELEMENT EmulatedHalf
#define D 64
#define RUNGS rungs_f16_d64
#include "tests/ladder/rungs_of_one_type.hpp"
