# The rungs for each element type and head dimension: the same text four times, each with its own macros.
foreach(type f16_d64 f16_d128 bf16_d64 bf16_d128)
  target_sources(test_ladder PRIVATE ${CMAKE_CURRENT_LIST_DIR}/rungs_${type}.cpp)
endforeach()
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/rungs_f16_d64.cpp ${CMAKE_CURRENT_LIST_DIR}/rungs_f16_d128.cpp
  ${CMAKE_CURRENT_LIST_DIR}/rungs_bf16_d64.cpp ${CMAKE_CURRENT_LIST_DIR}/rungs_bf16_d128.cpp
  TARGET_DIRECTORY test_ladder PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
