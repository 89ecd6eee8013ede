/* Causal attention of 8 heads over 128 tokens in C: random q, k and v in, o out. */
#include <attune/attune.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 128, HEADS = 8, DIM = 64, COUNT = ROWS * HEADS * DIM };

static float q[COUNT], k[COUNT], v[COUNT], o[COUNT];

static int attention(attune_context* context) {
  const attune_strides strides = {COUNT, HEADS * DIM, DIM}; /* from batch to batch, row to row, head to head */
  attune_forward_desc desc = {.struct_size = sizeof desc};
  attune_forward_args args = {.struct_size = sizeof args};
  desc.dtype = ATTUNE_F32;
  desc.causal = ATTUNE_CAUSAL_BOTTOM_RIGHT;
  desc.batch = 1;
  desc.heads_q = desc.heads_kv = HEADS;
  desc.seq_q = desc.seq_k = ROWS;
  desc.dim_qk = desc.dim_v = DIM;
  desc.q = desc.k = desc.v = desc.o = strides;
  args.q = q;
  args.k = k;
  args.v = v;
  args.o = o;
  return attune_forward(context, &desc, &args, NULL);
}

int main(void) {
  attune_context* context = NULL;
  int i, failed;
  for (i = 0; i < COUNT; ++i) {
    q[i] = (float)rand() / (float)RAND_MAX - 0.5f;
    k[i] = (float)rand() / (float)RAND_MAX - 0.5f;
    v[i] = (float)rand() / (float)RAND_MAX - 0.5f;
  }
  failed = attune_create(NULL, &context) != ATTUNE_OK || attention(context) != ATTUNE_OK;
  if (failed)
    fprintf(stderr, "%s\n", attune_last_error());
  else /* the first row sees only the first key, so it repeats the first value */
    printf("v[0] = %f, o[0] = %f\n", v[0], o[0]);
  attune_destroy(context);
  return failed;
}
