# The real cuda.h, where there is one: only to compare our own declarations with it.
find_path(ATTUNE_CUDA_INCLUDE cuda.h PATHS $ENV{CUDA_HOME}/include /usr/local/cuda/include)
if(ATTUNE_CUDA_INCLUDE)
  set_property(SOURCE gpu/driver_declarations_test.cpp APPEND PROPERTY INCLUDE_DIRECTORIES ${ATTUNE_CUDA_INCLUDE})
endif()
