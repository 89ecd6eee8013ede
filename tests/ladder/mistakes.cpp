#define ELEMENT EmulatedHalf
#define D 64
#include "tests/ladder/device_words.hpp"
// The device's words come first.
#include "tests/ladder/rungs.hpp"

namespace {
namespace zeros {
#include "zeros.cu"
}
namespace mask {
#include "mask.cu"
}
namespace nan_in_a_row {
#include "nan.cu"
}
namespace outside {
#include "outside.cu"
}
}  // namespace

attune::ladder::Rungs attune::ladder::mistakes() {
  return {{"zeros", thread<&zeros::attention>},
          {"mask", thread<&mask::attention>},
          {"nan", thread<&nan_in_a_row::attention>},
          {"outside", thread<&outside::attention>}};
}
