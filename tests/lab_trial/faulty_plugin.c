/* A plug-in of forty lines that computes float32 without a mask or with a causal one, and makes the mistakes of
 * faults.h. */
#include "attune/attune_contender.h"
#include "faults.h"

static const char* complaint = "";

static int32_t create(const attune_forward_desc* desc, void** instance) {
  if (fault_is("refuse") || desc->dtype != ATTUNE_F32 || (desc->features & ~(uint32_t)ATTUNE_LSE) != 0) {
    complaint = "float32 and no features but lse";
    return 1;
  }
  *instance = malloc(sizeof *desc);
  memcpy(*instance, desc, sizeof *desc);
  return 0;
}

static void attend(const attune_forward_desc* d, const attune_forward_args* args, int64_t b, int64_t h, int64_t row) {
  const float* q = (const float*)args->q + b * d->q.batch + row * d->q.row + h * d->q.head;
  const int64_t kv = h / (d->heads_q / d->heads_kv);
  const int64_t shift = d->causal == ATTUNE_CAUSAL_BOTTOM_RIGHT ? d->seq_k - d->seq_q : 0;
  const int64_t seen = d->causal == ATTUNE_CAUSAL_NONE || row + shift + 1 > d->seq_k ? d->seq_k : row + shift + 1;
  float* o = (float*)args->o + b * d->o.batch + row * d->o.row + h * d->o.head;
  double sum = 0, largest = -INFINITY, out[256] = {0};
  for (int64_t key = 0; key < seen; ++key) {
    const float* k = (const float*)args->k + b * d->k.batch + key * d->k.row + kv * d->k.head;
    const float* v = (const float*)args->v + b * d->v.batch + key * d->v.row + kv * d->v.head;
    double score = 0;
    for (int64_t i = 0; i < d->dim_qk; ++i) score += (double)q[i] * k[i] / sqrt((double)d->dim_qk);
    const double before = largest;
    largest = score > largest ? score : largest;
    const double shrink = exp(before - largest), weight = exp(score - largest);
    sum = sum * shrink + weight;
    for (int64_t i = 0; i < d->dim_v; ++i) out[i] = out[i] * shrink + weight * v[i];
  }
  for (int64_t i = 0; i < d->dim_v; ++i) o[i] = seen > 0 ? (float)(out[i] / sum) : 0;
  if (args->lse != NULL)
    args->lse[b * d->lse.batch + row * d->lse.row + h * d->lse.head] =
        seen > 0 ? (float)(largest + log(sum)) : -INFINITY;
}

static int32_t run(void* instance, const attune_forward_args* args, void* stream) {
  (void)stream;
  attune_forward_desc asked = *(const attune_forward_desc*)instance;
  fault_before(&asked);
  for (int64_t b = 0; b < asked.batch; ++b)
    for (int64_t h = 0; h < asked.heads_q; ++h)
      for (int64_t row = 0; row < asked.seq_q; ++row) attend(&asked, args, b, h, row);
  fault_after(&asked, args);
  return 0;
}

static void destroy(void* instance) { free(instance); }
static uint64_t workspace_bytes(void* instance) {
  (void)instance;
  return 64;
}
static const char* last_error(void) { return complaint; }

__attribute__((visibility("default"))) const attune_contender_api* attune_contender(void) {
  static const attune_contender_api api = {sizeof api, ATTUNE_CONTENDER_VERSION, "outsider", create, run,
                                           destroy,    workspace_bytes,          last_error};
  return &api;
}
