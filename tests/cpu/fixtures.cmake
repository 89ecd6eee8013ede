# The AMX level with emulated tiles runs through the tests of every CPU kernel; the library does not have it.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_sources(test_cpu PRIVATE cpu/amx_emulated.cpp)
  set_source_files_properties(cpu/amx_emulated.cpp PROPERTIES COMPILE_OPTIONS "-O2;${ATTUNE_AMX}"
    SKIP_PRECOMPILE_HEADERS ON)
endif()
