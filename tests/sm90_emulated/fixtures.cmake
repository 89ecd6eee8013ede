# instructions/ holds headers of the names of kernels/common: kernels find them first.
file(GLOB EMULATED_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cpp)
list(FILTER EMULATED_SOURCES EXCLUDE REGEX "_test\\.cpp$")
# The tests of the instructions on a card run here on the emulated ones.
target_sources(test_sm90_emulated PRIVATE ${EMULATED_SOURCES} ptx/cluster_test.cpp ptx/tma_test.cpp ptx/warp_test.cpp
  ptx/wgmma_test.cpp)
target_include_directories(test_sm90_emulated BEFORE PRIVATE ${CMAKE_CURRENT_LIST_DIR}/instructions)
# Kernels are written for NVRTC, which has other warnings. What a thread has not written holds a pattern, the same every
# time.
target_compile_options(test_sm90_emulated PRIVATE -Wno-unknown-pragmas -Wno-missing-field-initializers -Wno-shadow
  -Wno-sign-compare -Wno-unused-variable -Wno-unused-but-set-variable -Wno-maybe-uninitialized
  -ftrivial-auto-var-init=pattern)
