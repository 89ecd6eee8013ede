# The rungs for each element type and head dimension: the same text four times, each with its own macros.
foreach(type f16_d64 f16_d128 bf16_d64 bf16_d128)
  target_sources(test_ladder PRIVATE ${CMAKE_CURRENT_LIST_DIR}/rungs_${type}.cpp)
endforeach()
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/rungs_f16_d64.cpp ${CMAKE_CURRENT_LIST_DIR}/rungs_f16_d128.cpp
  ${CMAKE_CURRENT_LIST_DIR}/rungs_bf16_d64.cpp ${CMAKE_CURRENT_LIST_DIR}/rungs_bf16_d128.cpp
  TARGET_DIRECTORY test_ladder PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
# The file that `attune try --new` writes, with a mistake in each: what the check must find.
set(STARTING_FILE ${PROJECT_SOURCE_DIR}/lab/try/new_kernel.cu)
set(MISTAKES ${CMAKE_CURRENT_BINARY_DIR}/mistakes)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${STARTING_FILE})
function(plant_mistake name from to)
  file(READ ${STARTING_FILE} text)
  string(REPLACE "${from}" "${to}" changed "${text}")
  if(changed STREQUAL text)
    message(FATAL_ERROR "${STARTING_FILE} has no place for the mistake '${name}'")
  endif()
  file(CONFIGURE OUTPUT ${MISTAKES}/${name}.cu CONTENT "${changed}" @ONLY)
endfunction()
plant_mistake(zeros "seen > 0 ? out[i] / sum : 0.f" "0.f")
plant_mistake(mask "if (causal == 2) seen = min(k, row + 1 + k - q)" "if (causal == 2) seen = min(k, row + 2 + k - q)")
plant_mistake(nan "seen > 0 ? out[i] / sum : 0.f" "row == q - 1 ? NAN : out[i] / sum")
plant_mistake(outside "  float largest = -INFINITY"
  "  if (row == 0) O[static_cast<long long>(gridDim.z) * q * h * D + lane] = ELEMENT(1.f);\n  float largest = -INFINITY")
target_sources(test_ladder PRIVATE ${CMAKE_CURRENT_LIST_DIR}/mistakes.cpp)
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/mistakes.cpp TARGET_DIRECTORY test_ladder
  PROPERTIES SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS -I${MISTAKES})
# What lab/ladder/cublas_lt.cpp is tested with.
add_library(fake_cublaslt MODULE ${CMAKE_CURRENT_LIST_DIR}/fake_cublaslt.cpp)
target_include_directories(fake_cublaslt PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR})
set_target_properties(fake_cublaslt PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests CXX_VISIBILITY_PRESET default)
# ladder_test runs the command itself.
add_dependencies(test_ladder fake_cublaslt faulty_plugin attune_command)
