/* How another attention implementation joins a measurement of the attune command.
 *
 * Build a shared library that exports one function, attune_contender(), and name it on the command line:
 * `attune bench --plugin ./libmine.so`. It is then called on the same tensors, in the same rounds and inside the same
 * kind of CUDA graph as everything else, and must pass the same check before it is timed.
 *
 *   static int32_t create(const attune_forward_desc *desc, void **instance) { ... }
 *   static int32_t run(void *instance, const attune_forward_args *args, void *stream) { ... }
 *   static void destroy(void *instance) { ... }
 *   static const char *last_error(void) { ... }
 *   const attune_contender_api *attune_contender(void) {
 *     static const attune_contender_api api = {sizeof api, ATTUNE_CONTENDER_VERSION, "mine", create, run, destroy,
 *                                              NULL, last_error};
 *     return &api;
 *   }
 */
#ifndef ATTUNE_ATTUNE_CONTENDER_H
#define ATTUNE_ATTUNE_CONTENDER_H

#include "attune/attune.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Grows by one when attune_contender_api gains fields at its end; never otherwise. */
#define ATTUNE_CONTENDER_VERSION 1

/* Functions return 0 for success; anything else is a refusal that last_error explains. */
typedef struct attune_contender_api {
  uint32_t struct_size; /* sizeof(attune_contender_api) */
  uint32_t version;     /* ATTUNE_CONTENDER_VERSION */
  const char* name;     /* how results call it */

  /* Everything that can be done before the tensors are known: compile, choose, load. Refuses problems it cannot serve.
   */
  int32_t (*create)(const attune_forward_desc* desc, void** instance);

  /* Puts the computation on the stream (a CUstream; NULL for problems on the CPU, which are done when run returns).
   * Called inside stream capture: no allocation, no synchronisation, no other stream. Called with one set of tensors
   * many times, or with several in turn; args->workspace has the size that workspace_bytes asked for. */
  int32_t (*run)(void* instance, const attune_forward_args* args, void* stream);

  void (*destroy)(void* instance);

  /* May be NULL: no workspace. */
  uint64_t (*workspace_bytes)(void* instance);

  /* The sentence that belongs to this thread's last refusal. */
  const char* (*last_error)(void);
} attune_contender_api;

/* The one symbol a plug-in exports. */
#define ATTUNE_CONTENDER_SYMBOL "attune_contender"
typedef const attune_contender_api* (*attune_contender_entry)(void);

#ifdef __cplusplus
}
#endif
#endif
