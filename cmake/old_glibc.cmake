# Links the shared libraries of this folder so that they load with the glibc of version ATTUNE_GLIBC, although compiled
# beside a newer one. The objects are those of every other build: what differs is which version of each symbol the linker
# binds them to. It finds the versions in the stubs of old glibcs that zig has. The C++ runtime comes along as an archive.
#
# zig's own runtime is left out by -nostdlib: GCC's has what these objects ask for. libgcc_s stays shared, for the one of
# the system knows how to unwind there.
find_program(ATTUNE_ZIG zig REQUIRED)
set(runtime "")
foreach(name libstdc++.a libgcc.a libgcc_s.so.1)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${name} OUTPUT_VARIABLE file
    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(APPEND runtime " \"${file}\"")
endforeach()
set(CMAKE_CXX_CREATE_SHARED_LIBRARY
  "\"${ATTUNE_ZIG}\" cc -target ${CMAKE_SYSTEM_PROCESSOR}-linux-gnu.${ATTUNE_GLIBC} -nostdlib -shared <LINK_FLAGS>\
 <SONAME_FLAG><TARGET_SONAME> -o <TARGET> <OBJECTS> <LINK_LIBRARIES>${runtime} -lc -lm -lpthread -ldl")
