/* The mistakes that code from outside makes in the tests. The environment says which one: ATTUNE_TEST_FAULT is zeros,
 * mask, nan, outside, crash, hang, input, workspace, exit or refuse; ATTUNE_TEST_FAULT_AT is the call from which on it
 * happens, 1 if it is not given. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attune/attune.h"

static int fault_calls;

static int fault_is(const char* what) {
  const char* fault = getenv("ATTUNE_TEST_FAULT");
  const char* from = getenv("ATTUNE_TEST_FAULT_AT");
  return fault != NULL && strcmp(fault, what) == 0 && fault_calls >= (from == NULL ? 1 : atoi(from));
}

/* Before a call. */
static void fault_before(attune_forward_desc* desc) {
  ++fault_calls;
  if (fault_is("mask")) desc->causal = ATTUNE_CAUSAL_TOP_LEFT;
  if (fault_is("crash")) abort();
  if (fault_is("exit")) exit(0);
  while (fault_is("hang")) sleep(1);
}

/* After one, whose result was right. The tests have dense float32. */
static void fault_after(const attune_forward_desc* desc, const attune_forward_args* args) {
  float* o = (float*)args->o;
  const int64_t count = desc->batch * desc->seq_q * desc->heads_q * desc->dim_v;
  if (fault_is("zeros")) memset(o, 0, (size_t)count * sizeof *o);
  if (fault_is("nan")) o[count / 2] = NAN;
  if (fault_is("outside")) o[count] = 1;
  if (fault_is("input")) *(float*)args->k = 1;
  if (fault_is("workspace") && args->workspace != NULL) ((char*)args->workspace)[args->workspace_bytes] = 1;
}
