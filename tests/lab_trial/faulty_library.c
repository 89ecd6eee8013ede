/* Another build of the library that makes a mistake: every call goes to the libattune.so that ATTUNE_TEST_LIBRARY
 * names, and the mistakes are those of faults.h. */
#include <dlfcn.h>

#include "faults.h"

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
  return CALL(attune_prepare, context, desc);
}
attune_status attune_workspace_bytes(attune_context* context, const attune_forward_desc* desc, uint64_t* bytes) {
  return CALL(attune_workspace_bytes, context, desc, bytes);
}
attune_status attune_forward(attune_context* context, const attune_forward_desc* desc, const attune_forward_args* args,
                             void* stream) {
  attune_forward_desc asked = *desc;
  fault_before(&asked);
  const attune_status status = CALL(attune_forward, context, &asked, args, stream);
  fault_after(desc, args);
  return status;
}
attune_status attune_explain(attune_context* context, const attune_forward_desc* desc, char* buffer, size_t capacity,
                             size_t* length) {
  return CALL(attune_explain, context, desc, buffer, capacity, length);
}
const char* attune_last_error(void) { return ((__typeof__(&attune_last_error))real("attune_last_error"))(); }
uint32_t attune_abi_version(void) { return ((__typeof__(&attune_abi_version))real("attune_abi_version"))(); }
