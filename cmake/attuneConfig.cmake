# find_package(attune) gives the target attune::attune; the library needs nothing else.
include("${CMAKE_CURRENT_LIST_DIR}/attuneTargets.cmake")
