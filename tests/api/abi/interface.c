/* Every function of the header, defined with nothing behind it, so that abidw sees the C interface alone and not the
 * C++ it is made of. The compiler holds the signatures to the header; a test holds the list to what libattune.so
 * exports. */
#include <attune/attune.h>

attune_status attune_create(const attune_options* options, attune_context** context) {
  return options != NULL && context != NULL;
}

void attune_destroy(attune_context* context) { (void)context; }

attune_status attune_prepare(attune_context* context, const attune_forward_desc* desc) {
  return context != NULL && desc != NULL;
}

attune_status attune_workspace_bytes(attune_context* context, const attune_forward_desc* desc, uint64_t* bytes) {
  return context != NULL && desc != NULL && bytes != NULL;
}

attune_status attune_forward(attune_context* context, const attune_forward_desc* desc, const attune_forward_args* args,
                             void* stream) {
  return context != NULL && desc != NULL && args != NULL && stream != NULL;
}

attune_status attune_backward_prepare(attune_context* context, const attune_backward_desc* desc) {
  return context != NULL && desc != NULL;
}

attune_status attune_backward_workspace_bytes(attune_context* context, const attune_backward_desc* desc,
                                              uint64_t* bytes) {
  return context != NULL && desc != NULL && bytes != NULL;
}

attune_status attune_backward(attune_context* context, const attune_backward_desc* desc,
                              const attune_backward_args* args, void* stream) {
  return context != NULL && desc != NULL && args != NULL && stream != NULL;
}

attune_status attune_backward_explain(attune_context* context, const attune_backward_desc* desc, char* buffer,
                                      size_t capacity, size_t* length) {
  return context != NULL && desc != NULL && buffer != NULL && capacity != 0 && length != NULL;
}

attune_status attune_merge(attune_context* context, const attune_merge_desc* desc, const attune_merge_args* args,
                           void* stream) {
  return context != NULL && desc != NULL && args != NULL && stream != NULL;
}

attune_status attune_explain(attune_context* context, const attune_forward_desc* desc, char* buffer, size_t capacity,
                             size_t* length) {
  return context != NULL && desc != NULL && buffer != NULL && capacity != 0 && length != NULL;
}

const char* attune_last_error(void) { return ""; }

uint32_t attune_abi_version(void) { return ATTUNE_ABI_VERSION; }
