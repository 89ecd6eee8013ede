# The real cuda.h, where there is one: only to compare our own declarations with it.
find_path(ATTUNE_CUDA_INCLUDE cuda.h PATHS $ENV{CUDA_HOME}/include /usr/local/cuda/include)
if(ATTUNE_CUDA_INCLUDE)
  set_property(SOURCE gpu/driver_declarations_test.cpp APPEND PROPERTY INCLUDE_DIRECTORIES ${ATTUNE_CUDA_INCLUDE})
endif()

# A driver for forked_driver_test.cpp, under the name by which the library loads one.
add_library(started_driver MODULE ${CMAKE_CURRENT_LIST_DIR}/started_driver.cpp)
target_include_directories(started_driver PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src
  ${PROJECT_SOURCE_DIR}/include)
target_compile_options(started_driver PRIVATE ${ATTUNE_NOT_FOR_USERS})
target_link_options(started_driver PRIVATE -Wl,-soname,libcuda.so.1)
set_target_properties(started_driver PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_dependencies(test_gpu started_driver)
