# The rungs for each element type and head dimension: the same text four times, each with its own macros.
foreach(type f16_d64 f16_d128 bf16_d64 bf16_d128)
  target_sources(test_ladder PRIVATE ${CMAKE_CURRENT_LIST_DIR}/rungs_${type}.cpp)
endforeach()
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/rungs_f16_d64.cpp ${CMAKE_CURRENT_LIST_DIR}/rungs_f16_d128.cpp
  ${CMAKE_CURRENT_LIST_DIR}/rungs_bf16_d64.cpp ${CMAKE_CURRENT_LIST_DIR}/rungs_bf16_d128.cpp
  TARGET_DIRECTORY test_ladder PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
# What lab/ladder/cublas_lt.cpp is tested with.
add_library(fake_cublaslt MODULE ${CMAKE_CURRENT_LIST_DIR}/fake_cublaslt.cpp)
target_include_directories(fake_cublaslt PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR})
set_target_properties(fake_cublaslt PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests CXX_VISIBILITY_PRESET default)
# ladder_test runs the command itself.
add_dependencies(test_ladder fake_cublaslt faulty_plugin attune_command)
