# What test_lab_measure loads at run time: a plug-in, and the shared library as another build of itself.
add_library(contender_fixture MODULE ${CMAKE_CURRENT_LIST_DIR}/contender_fixture.c)
target_include_directories(contender_fixture PRIVATE ${PROJECT_SOURCE_DIR}/include)
set_target_properties(contender_fixture PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_dependencies(test_lab_measure contender_fixture attune)
