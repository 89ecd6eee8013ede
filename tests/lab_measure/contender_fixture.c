/* A plug-in for the tests: a contender whose behaviour the test chooses through an environment variable. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "attune/attune_contender.h"

static int runs;

static int behaves(const char* what) {
  const char* chosen = getenv("ATTUNE_TEST_CONTENDER");
  return chosen != NULL && strcmp(chosen, what) == 0;
}

static int32_t create(const attune_forward_desc* desc, void** instance) {
  if (desc->dim_qk > 64) return 1;
  *instance = &runs;
  return 0;
}

/* Writes the number of runs so far into the first element of o. */
static int32_t run(void* instance, const attune_forward_args* args, void* stream) {
  (void)stream;
  int* count = (int*)instance;
  if (behaves("fail")) return 2;
  *(uint16_t*)args->o = (uint16_t)++*count;
  return 0;
}

static void destroy(void* instance) { *(int*)instance = 0; }
static uint64_t workspace_bytes(void* instance) {
  (void)instance;
  return 96;
}
static const char* last_error(void) { return "head dims above 64 are too much for this fixture"; }

__attribute__((visibility("default"))) const attune_contender_api* attune_contender(void) {
  static const attune_contender_api good = {sizeof(attune_contender_api),
                                            ATTUNE_CONTENDER_VERSION,
                                            "fixture",
                                            create,
                                            run,
                                            destroy,
                                            workspace_bytes,
                                            last_error};
  static const attune_contender_api newer = {sizeof(attune_contender_api),
                                             ATTUNE_CONTENDER_VERSION + 1,
                                             "fixture",
                                             create,
                                             run,
                                             destroy,
                                             workspace_bytes,
                                             last_error};
  static const attune_contender_api hollow = {sizeof(attune_contender_api),
                                              ATTUNE_CONTENDER_VERSION,
                                              "fixture",
                                              create,
                                              NULL,
                                              destroy,
                                              workspace_bytes,
                                              last_error};
  if (behaves("null")) return NULL;
  if (behaves("newer")) return &newer;
  return behaves("hollow") ? &hollow : &good;
}
