// The kernels of tests/ptx for the emulator.
#include "tests/ptx/harness.hpp"
// The harness must come first.
#include "tests/ptx/tma.cuh"

ATTUNE_EMULATED(test_warp, (), ())
ATTUNE_EMULATED(test_sync, (), ())
ATTUNE_EMULATED(test_tma, (), ())
ATTUNE_EMULATED(test_cluster, (), ())
ATTUNE_EMULATED(test_wgmma, (.n = 32, .a_major = Major::k), ())
ATTUNE_EMULATED(test_wgmma, (.n = 48, .a_major = Major::k), ())
ATTUNE_EMULATED(test_wgmma, (.n = 64, .a_major = Major::k), ())
ATTUNE_EMULATED(test_wgmma, (.n = 80, .a_major = Major::k), ())
ATTUNE_EMULATED(test_wgmma, (.n = 96, .a_major = Major::k), ())
ATTUNE_EMULATED(test_wgmma, (.n = 112, .a_major = Major::k), ())
ATTUNE_EMULATED(test_wgmma, (.n = 128, .a_major = Major::k), ())
ATTUNE_EMULATED(test_wgmma, (.n = 144, .a_major = Major::k), ())
ATTUNE_EMULATED(test_wgmma, (.n = 160, .a_major = Major::k), ())
ATTUNE_EMULATED(test_wgmma, (.n = 176, .a_major = Major::k), ())
ATTUNE_EMULATED(test_wgmma, (.n = 192, .a_major = Major::k), ())
ATTUNE_EMULATED(test_wgmma, (.n = 256, .a_major = Major::k), ())
ATTUNE_EMULATED(test_wgmma, (.n = 64, .a_major = Major::mn), ())
