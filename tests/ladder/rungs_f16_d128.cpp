#define ELEMENT EmulatedHalf
#define D 128
#define RUNGS rungs_f16_d128
#include "tests/ladder/rungs_of_one_type.hpp"
