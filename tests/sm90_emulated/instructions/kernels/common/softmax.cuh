// kernels/common/softmax.cuh itself. It divides by zero in a constant expression, which only NVRTC takes.
#pragma once

#include "kernels/common/quad.cuh"
#include "kernels/common/registers.cuh"
#include "kernels/common/types.cuh"
#include "kernels/common/wgmma.cuh"

#define constexpr const
#include "../../../../../kernels/common/softmax.cuh"
#undef constexpr
