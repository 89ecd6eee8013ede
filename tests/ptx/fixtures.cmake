# The device text of the test kernels travels inside the test, as that of the kernels does inside the library.
file(GLOB PTX_TEST_KERNELS CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cuh)
set(PTX_TEST_SOURCES ${CMAKE_CURRENT_BINARY_DIR}/ptx_test_sources.cpp)
list(JOIN PTX_TEST_KERNELS "," PTX_TEST_KERNEL_LIST)
add_custom_command(OUTPUT ${PTX_TEST_SOURCES}
  COMMAND ${CMAKE_COMMAND} -DREPO=${PROJECT_SOURCE_DIR} -DOUTPUT=${PTX_TEST_SOURCES} -DFILES=${PTX_TEST_KERNEL_LIST}
    -P ${CMAKE_CURRENT_LIST_DIR}/embed.cmake
  DEPENDS ${PTX_TEST_KERNELS} ${CMAKE_CURRENT_LIST_DIR}/embed.cmake VERBATIM)
target_sources(test_ptx PRIVATE ${CMAKE_CURRENT_LIST_DIR}/harness.cpp ${PTX_TEST_SOURCES})
