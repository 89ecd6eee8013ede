/* Doubles of the measuring engine, of libattune and of the CUDA driver in one library, for tests of the Python host on
 * a machine without a GPU. "Device memory" is host memory, a graph counts its launches, and the engine knows the time
 * of each contender by its name. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attune/attune.h"
#include "lab/measure/engine_c_api.h"

/* ---- CUDA driver ---- */

typedef struct fake_graph {
  size_t nodes;
  int programmatic; /* edges of that type; the fake captures one where there are edges */
} fake_graph;
typedef struct edge_data {
  unsigned char from_port, to_port, type, reserved[5];
} edge_data;

static fake_graph* capturing;
static int executables;

void* fake_capture_begin(void) { return capturing = calloc(1, sizeof *capturing); }
void fake_capture_end(void) {
  if (capturing->nodes > 1) capturing->programmatic = 1;
  capturing = NULL;
}
void fake_launch(void) {
  if (capturing != NULL) ++capturing->nodes;
}

int cuGraphGetNodes(fake_graph* graph, void** nodes, size_t* count) {
  if (nodes != NULL) return 1;
  *count = graph->nodes;
  return 0;
}
int cuGraphGetEdges_v2(fake_graph* graph, void** from, void** to, edge_data* data, size_t* count) {
  *count = graph->nodes - 1;
  for (size_t i = 0; from != NULL && i < *count; ++i) {
    from[i] = (void*)(getenv("FAKE_FORK") != NULL ? 1 : i + 1);
    to[i] = (void*)(i + 2);
    memset(&data[i], 0, sizeof data[i]);
    data[i].type = (int)i < graph->programmatic;
  }
  return 0;
}
int cuGraphRemoveDependencies_v2(fake_graph* graph, void** from, void** to, const edge_data* data, size_t count) {
  (void)from, (void)to;
  for (size_t i = 0; i < count; ++i) graph->programmatic -= data[i].type;
  return 0;
}
int cuGraphAddDependencies_v2(fake_graph* graph, void** from, void** to, const edge_data* data, size_t count) {
  (void)from, (void)to;
  for (size_t i = 0; i < count; ++i) graph->programmatic += data[i].type;
  return 0;
}
int cuGraphInstantiateWithFlags(fake_graph** executable, const fake_graph* graph, unsigned long long flags) {
  (void)flags;
  *executable = malloc(sizeof **executable);
  **executable = *graph;
  ++executables;
  return 0;
}
int cuGraphExecDestroy(fake_graph* executable) {
  free(executable);
  --executables;
  return 0;
}

/* ---- libattune: f32 attention, and by name a kernel that is wrong ---- */

struct attune_context {
  char kernel[64];
};
static const char* attune_error = "";
static const void* latest_q; /* of the latest call; its buffers move with the seed */

attune_status attune_create(const attune_options* options, attune_context** context) {
  attune_error = "there is no such kernel";
  if (options->kernel != NULL && strncmp(options->kernel, "fake/", 5) != 0) return ATTUNE_INVALID_ARGUMENT;
  *context = calloc(1, sizeof **context);
  snprintf((*context)->kernel, sizeof(*context)->kernel, "%s", options->kernel ? options->kernel : "fake/choice");
  return ATTUNE_OK;
}
void attune_destroy(attune_context* context) { free(context); }
attune_status attune_prepare(attune_context* context, const attune_forward_desc* desc) {
  (void)context;
  attune_error = "no kernel here takes head dimension 7";
  return desc->dim_qk == 7 ? ATTUNE_UNSUPPORTED : ATTUNE_OK;
}
attune_status attune_workspace_bytes(attune_context* context, const attune_forward_desc* desc, uint64_t* bytes) {
  (void)context, (void)desc;
  *bytes = 64;
  return ATTUNE_OK;
}
attune_status attune_explain(attune_context* context, const attune_forward_desc* desc, char* buffer, size_t capacity,
                             size_t* length) {
  (void)desc;
  *length = (size_t)snprintf(buffer, capacity, "problem: fake\nkernel: %s\nwhy: fake\n", context->kernel);
  return ATTUNE_OK;
}
static const float* row_of(const void* base, attune_strides strides, int64_t batch, int64_t row, int64_t head) {
  return (const float*)base + batch * strides.batch + row * strides.row + head * strides.head;
}
static void attend(const attune_forward_desc* d, const attune_forward_args* a, int64_t batch, int64_t row, int64_t head,
                   double factor) {
  const int64_t kv_head = head / (d->heads_q / d->heads_kv);
  const double scale = d->features & ATTUNE_SCALE ? d->scale : 1 / sqrt((double)d->dim_qk);
  int64_t keys = d->seq_k;
  if (d->causal == ATTUNE_CAUSAL_TOP_LEFT && row + 1 < keys) keys = row + 1;
  if (d->causal == ATTUNE_CAUSAL_BOTTOM_RIGHT) keys = row + 1 + d->seq_k - d->seq_q;
  double total = 0, sums[512] = {0};
  const float* q = row_of(a->q, d->q, batch, row, head);
  for (int64_t key = 0; key < keys; ++key) {
    const float *k = row_of(a->k, d->k, batch, key, kv_head), *v = row_of(a->v, d->v, batch, key, kv_head);
    double score = 0;
    for (int64_t i = 0; i < d->dim_qk; ++i) score += (double)q[i] * k[i];
    const double weight = exp(score * scale);
    total += weight;
    for (int64_t i = 0; i < d->dim_v; ++i) sums[i] += weight * v[i];
  }
  float* o = (float*)row_of(a->o, d->o, batch, row, head);
  for (int64_t i = 0; i < d->dim_v; ++i) o[i] = keys > 0 ? (float)(factor * sums[i] / total) : 0;
  if (d->features & ATTUNE_LSE) *(float*)row_of(a->lse, d->lse, batch, row, head) = (float)log(total);
}
attune_status attune_forward(attune_context* context, const attune_forward_desc* desc, const attune_forward_args* args,
                             void* stream) {
  attune_error = "not called on the stream of the fake, or without its workspace";
  if ((capturing != NULL && stream != (void*)77) || args->workspace_bytes != 64) return ATTUNE_INVALID_ARGUMENT;
  const double factor = strcmp(context->kernel, "fake/wrong") == 0 ? 1.001 : 1;
  for (int64_t batch = 0; batch < desc->batch; ++batch)
    for (int64_t head = 0; head < desc->heads_q; ++head)
      for (int64_t row = 0; row < desc->seq_q; ++row) attend(desc, args, batch, row, head, factor);
  latest_q = args->q;
  fake_launch();
  return ATTUNE_OK;
}
/* ---- its gradients; those of fake/wrong miss the share of the output in those of the scores ---- */

attune_status attune_backward_prepare(attune_context* context, const attune_backward_desc* desc) {
  (void)context;
  attune_error = "no kernel here takes gradients of head dimension 7";
  return desc->dim_qk == 7 ? ATTUNE_UNSUPPORTED : ATTUNE_OK;
}
attune_status attune_backward_workspace_bytes(attune_context* context, const attune_backward_desc* desc,
                                              uint64_t* bytes) {
  (void)context, (void)desc;
  *bytes = 64;
  return ATTUNE_OK;
}
attune_status attune_backward_explain(attune_context* context, const attune_backward_desc* desc, char* buffer,
                                      size_t capacity, size_t* length) {
  (void)desc;
  *length = (size_t)snprintf(buffer, capacity, "problem: fake\nkernel: %s/bwd\nwhy: fake\n", context->kernel);
  return ATTUNE_OK;
}
static double dot(const float* a, const float* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += (double)a[i] * b[i];
  return sum;
}
static void add(float* to, const float* from, double factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += (float)(factor * from[i]);
}
static void clear(const attune_backward_desc* d, void* base, attune_strides strides, int64_t heads, int64_t rows,
                  int64_t dim) {
  for (int64_t batch = 0; batch < d->batch; ++batch)
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t row = 0; row < rows; ++row)
        memset((float*)row_of(base, strides, batch, row, head), 0, (size_t)dim * sizeof(float));
}
static void differentiate(const attune_backward_desc* d, const attune_backward_args* a, int64_t batch, int64_t row,
                          int64_t head, int wrong) {
  const int64_t kv_head = head / (d->heads_q / d->heads_kv);
  const double scale = d->features & ATTUNE_SCALE ? d->scale : 1 / sqrt((double)d->dim_qk);
  int64_t keys = d->seq_k;
  if (d->causal == ATTUNE_CAUSAL_TOP_LEFT && row + 1 < keys) keys = row + 1;
  if (d->causal == ATTUNE_CAUSAL_BOTTOM_RIGHT) keys = row + 1 + d->seq_k - d->seq_q;
  const float *q = row_of(a->q, d->q, batch, row, head), *dout = row_of(a->dout, d->dout, batch, row, head);
  const double delta = wrong ? 0 : dot(dout, row_of(a->o, d->o, batch, row, head), d->dim_v);
  const double lse = *row_of(a->lse, d->lse, batch, row, head);
  for (int64_t key = 0; key < keys; ++key) {
    const float *k = row_of(a->k, d->k, batch, key, kv_head), *v = row_of(a->v, d->v, batch, key, kv_head);
    const double weight = exp(scale * dot(q, k, d->dim_qk) - lse);
    const double of_score = scale * weight * (dot(dout, v, d->dim_v) - delta);
    add((float*)row_of(a->dq, d->dq, batch, row, head), k, of_score, d->dim_qk);
    add((float*)row_of(a->dk, d->dk, batch, key, kv_head), q, of_score, d->dim_qk);
    add((float*)row_of(a->dv, d->dv, batch, key, kv_head), dout, weight, d->dim_v);
  }
}
attune_status attune_backward(attune_context* context, const attune_backward_desc* desc,
                              const attune_backward_args* args, void* stream) {
  attune_error = "not called on the stream of the fake, or without its workspace";
  if ((capturing != NULL && stream != (void*)77) || args->workspace_bytes != 64) return ATTUNE_INVALID_ARGUMENT;
  clear(desc, args->dq, desc->dq, desc->heads_q, desc->seq_q, desc->dim_qk);
  clear(desc, args->dk, desc->dk, desc->heads_kv, desc->seq_k, desc->dim_qk);
  clear(desc, args->dv, desc->dv, desc->heads_kv, desc->seq_k, desc->dim_v);
  for (int64_t batch = 0; batch < desc->batch; ++batch)
    for (int64_t head = 0; head < desc->heads_q; ++head)
      for (int64_t row = 0; row < desc->seq_q; ++row)
        differentiate(desc, args, batch, row, head, strcmp(context->kernel, "fake/wrong") == 0);
  latest_q = args->q;
  fake_launch();
  return ATTUNE_OK;
}
const char* attune_last_error(void) { return attune_error; }
uint32_t attune_abi_version(void) { return ATTUNE_ABI_VERSION; }

/* ---- a plug-in: what attune_forward computes, or by the environment something else ---- */

static int32_t plugin_create(const attune_forward_desc* desc, void** instance) {
  if (desc->dim_qk == 9) return 1;
  *instance = malloc(sizeof *desc);
  memcpy(*instance, desc, sizeof *desc);
  return 0;
}
static int32_t plugin_run(void* instance, const attune_forward_args* args, void* stream) {
  attune_context context = {"fake/plugin"};
  if (getenv("FAKE_PLUGIN_WRONG") != NULL) strcpy(context.kernel, "fake/wrong");
  return (int32_t)attune_forward(&context, instance, args, stream);
}
static uint64_t plugin_workspace_bytes(void* instance) {
  (void)instance;
  return 64;
}
static const char* plugin_last_error(void) { return "no head dimension 9"; }
const attune_contender_api* attune_contender(void) {
  static const attune_contender_api api = {
      sizeof api, ATTUNE_CONTENDER_VERSION, "outsider",       plugin_create, plugin_run,
      free,       plugin_workspace_bytes,   plugin_last_error};
  return &api;
}

/* ---- the engine ---- */

enum { most_graphs = 16, text_size = 1 << 16 };
struct attune_lab_session {
  attune_lab_graph graphs[most_graphs];
  char names[most_graphs][64];
  int count;
  char result[text_size], analysis[text_size / 2];
};
static char engine_error[256];

static int failed(const char* text) {
  snprintf(engine_error, sizeof engine_error, "%s", text);
  return 1;
}
static double seconds_of(const char* name) {
  const char* names[] = {"attune", "fake/other", "cudnn", "flash"};
  const double microseconds[] = {10, 11, 12, 8};
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i)
    if (strcmp(name, names[i]) == 0) return microseconds[i] * 1e-6;
  return 30e-6;
}
static void analyse(char* text, char names[][64], int count) {
  char* end = text + sprintf(text, "{\"contenders\": [");
  for (int i = 0; i < count; ++i)
    end += sprintf(end, "%s{\"name\": \"%s\", \"seconds\": %g}", i ? ", " : "", names[i], seconds_of(names[i]));
  sprintf(end, "]}");
}

int32_t attune_lab_session_create(const char* protocol_json, int32_t device_index, attune_lab_session** session) {
  if (strstr(protocol_json, "\"rounds\": 0") != NULL) return failed("protocol: rounds is 0");
  if (strstr(protocol_json, "\"mode\": \"steady\"") == NULL || device_index != 0)
    return failed("not what the tests ask");
  *session = calloc(1, sizeof **session);
  latest_q = NULL;
  return 0;
}
void attune_lab_session_destroy(attune_lab_session* session) {
  if (executables != 0) fprintf(stderr, "%d graphs were not destroyed\n", executables);
  free(session);
}
int32_t attune_lab_add_graph(attune_lab_session* session, const attune_lab_graph* graph) {
  if (graph->struct_size != sizeof *graph) return failed("struct_size");
  if ((graph->role == ATTUNE_LAB_TWIN) != (session->count == 1)) return failed("the second one is the twin");
  session->graphs[session->count] = *graph;
  snprintf(session->names[session->count++], 64, "%s%s", graph->name, graph->role == ATTUNE_LAB_TWIN ? " (A/A)" : "");
  return 0;
}
int32_t attune_lab_add_call(attune_lab_session* session, const attune_lab_call* call) {
  (void)session, (void)call;
  return failed("the fake measures graphs only");
}
static int captures_well(attune_lab_session* session, int calls, uint64_t seed) {
  for (int i = 0; i < session->count; ++i) {
    const fake_graph* graph = session->graphs[i].capture(session->graphs[i].user, calls, seed);
    if (graph == NULL) return !failed("capturing failed");
    if (graph->nodes != (size_t)calls || graph->programmatic != 0) return !failed("a graph of other calls or edges");
  }
  return 1;
}
int32_t attune_lab_run(attune_lab_session* session, attune_lab_progress progress, void* user,
                       const char** result_json) {
  const uint64_t seeds[] = {0xfedcba9876543210u, 2};
  if (getenv("FAKE_FAILURE") != NULL) return failed("cuGraphLaunch: the fake had enough");
  if (!captures_well(session, 2, seeds[0])) return 1;
  const void* first_q = latest_q;
  if (!captures_well(session, 5, seeds[0])) return 1;
  if (latest_q != first_q) return failed("the same seed gave other buffers");
  if (progress(user, "fake", 0.5) != 0) return failed("ended by the progress function");
  if (!captures_well(session, 5, seeds[1])) return 1;
  if (first_q != NULL && latest_q == first_q) return failed("another seed gave the same buffers");
  char* end = session->result + sprintf(session->result, "{\"measurement\": {\"protocol\": {}, \"contenders\": [");
  for (int i = 0; i < session->count; ++i)
    end += sprintf(end, "%s{\"name\": \"%s\", \"role\": \"%s\", \"seconds\": [[%g]]}", i ? ", " : "", session->names[i],
                   i == 0   ? "baseline"
                   : i == 1 ? "twin"
                            : "contender",
                   seconds_of(session->graphs[i].name));
  analyse(session->analysis, session->names, session->count);
  sprintf(end, "]}, \"analysis\": %s}", session->analysis);
  *result_json = session->result;
  return 0;
}
int32_t attune_lab_environment(attune_lab_session* session, const char** facts_json) {
  (void)session;
  *facts_json = "{\"processor\": \"fake\"}";
  return 0;
}
const char* attune_lab_last_error(void) { return engine_error; }
uint32_t attune_lab_engine_version(void) { return ATTUNE_LAB_ENGINE_VERSION; }
