/* Stands in for another build of the library. Every call goes to the libattune.so that the environment variable
 * ATTUNE_TEST_LIBRARY names, but SLOW lets each attune_forward take twenty times as long, and REFUSES takes no problem.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "attune/attune.h"

typedef void (*function)(void);

static function real(const char* symbol) {
  static void* handle;
  if (handle == NULL) handle = dlopen(getenv("ATTUNE_TEST_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
  function found = NULL;
  void* address = handle == NULL ? NULL : dlsym(handle, symbol);
  memcpy(&found, &address, sizeof found); /* ISO C knows no cast from an object's address to a function's */
  return found;
}

#define CALL(name, ...) ((__typeof__(&name))real(#name))(__VA_ARGS__)

attune_status attune_create(const attune_options* options, attune_context** context) {
  return CALL(attune_create, options, context);
}
void attune_destroy(attune_context* context) { CALL(attune_destroy, context); }
attune_status attune_prepare(attune_context* context, const attune_forward_desc* desc) {
#ifdef REFUSES
  (void)context;
  (void)desc;
  return ATTUNE_UNSUPPORTED;
#else
  return CALL(attune_prepare, context, desc);
#endif
}
attune_status attune_workspace_bytes(attune_context* context, const attune_forward_desc* desc, uint64_t* bytes) {
  return CALL(attune_workspace_bytes, context, desc, bytes);
}

#ifdef SLOW
static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
#endif

attune_status attune_forward(attune_context* context, const attune_forward_desc* desc, const attune_forward_args* args,
                             void* stream) {
#ifdef SLOW
  const double begin = seconds();
  const attune_status status = CALL(attune_forward, context, desc, args, stream);
  const double end = seconds() + 19 * (seconds() - begin);
  while (seconds() < end) {
  }
  return status;
#else
  return CALL(attune_forward, context, desc, args, stream);
#endif
}
attune_status attune_explain(attune_context* context, const attune_forward_desc* desc, char* buffer, size_t capacity,
                             size_t* length) {
  return CALL(attune_explain, context, desc, buffer, capacity, length);
}
const char* attune_last_error(void) {
#ifdef REFUSES
  return "this library takes no problem";
#else
  return ((__typeof__(&attune_last_error))real("attune_last_error"))();
#endif
}
uint32_t attune_abi_version(void) { return ((__typeof__(&attune_abi_version))real("attune_abi_version"))(); }
