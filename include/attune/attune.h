/* Attune: fused scaled dot-product attention. The C interface.
 *
 *   attune_context *context;
 *   attune_create(NULL, &context);
 *   attune_forward_desc desc = {.struct_size = sizeof desc};  // what is asked: zero means "plain"
 *   ...shapes, strides...
 *   attune_forward_args args = {.struct_size = sizeof args};  // where the tensors are
 *   ...pointers...
 *   if (attune_forward(context, &desc, &args, NULL) != ATTUNE_OK) puts(attune_last_error());
 *
 * Every tensor is seen as (batch, row, head, dim) through strides counted in elements; the last
 * dimension is contiguous. A zeroed descriptor asks for plain attention; features are switched on by
 * bits in `features`, and only then are their fields read. No function allocates device memory,
 * synchronises, prints or aborts. A context may be used from many threads, and in forked children.
 */
#ifndef ATTUNE_ATTUNE_H
#define ATTUNE_ATTUNE_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define ATTUNE_API
#else
#define ATTUNE_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Grows by one when a descriptor gains fields at its end, or when there are new functions; never otherwise. */
#define ATTUNE_ABI_VERSION 3

typedef int32_t attune_status;
enum {
  ATTUNE_OK = 0,
  ATTUNE_INVALID_ARGUMENT = 1, /* the call contradicts the contract; the text names the argument */
  ATTUNE_UNSUPPORTED = 2,      /* a legal call that no kernel present can serve */
  ATTUNE_NO_DEVICE = 3,        /* the device asked for is absent; the text says why */
  ATTUNE_NOT_BUILT = 4,        /* compilation is switched off and the kernel is not in the pack */
  ATTUNE_NOT_PREPARED = 5,     /* inside a graph capture, and attune_prepare was not called before */
  ATTUNE_COMPILE_ERROR = 6,    /* the run-time compiler is missing or refused the kernel */
  ATTUNE_DEVICE_ERROR = 7,     /* the driver reported an error */
  ATTUNE_OUT_OF_MEMORY = 8,    /* host memory */
  ATTUNE_INTERNAL_ERROR = 9    /* a defect of the library */
};

typedef int32_t attune_dtype;
enum { ATTUNE_F16 = 0, ATTUNE_BF16 = 1, ATTUNE_F32 = 2 };

typedef int32_t attune_device_kind;
enum { ATTUNE_CPU = 0, ATTUNE_CUDA = 1 };

/* Where the diagonal lies when seq_q != seq_k. top-left: row i sees keys 0..i.
 * bottom-right: row i sees keys 0..i + seq_k - seq_q. */
typedef int32_t attune_causal;
enum { ATTUNE_CAUSAL_NONE = 0, ATTUNE_CAUSAL_TOP_LEFT = 1, ATTUNE_CAUSAL_BOTTOM_RIGHT = 2 };

/* Bits of `features` in attune_forward_desc and attune_backward_desc. */
typedef uint32_t attune_features;
#define ATTUNE_SCALE 0x001u   /* `scale` replaces 1/sqrt(dim_qk); 0 and negative are legal; a GPU takes up to 2e38 */
#define ATTUNE_WINDOW 0x002u  /* `window_left`, `window_right` */
#define ATTUNE_SOFTCAP 0x004u /* `softcap` */
#define ATTUNE_SINK 0x008u    /* args.sink: one logit per query head that joins the denominator */
#define ATTUNE_BIAS 0x010u    /* args.bias is added to the scores */
#define ATTUNE_MASK 0x020u    /* args.mask: bytes, 0 hides a key */
#define ATTUNE_PACKED 0x040u  /* sequences lie end to end; args.cu_seqlens_q and _k delimit them */
#define ATTUNE_USED_Q 0x080u  /* args.used_q: rows in use per sequence */
#define ATTUNE_USED_K 0x100u  /* args.used_k: keys in use per sequence */
#define ATTUNE_LSE 0x200u     /* args.lse receives the log-sum-exp of each row */
/* On a GPU the call may start while the kernel before it in the stream is still ending; it waits for that kernel before
 * it reads or writes what that kernel may touch. Kernels that cannot do so run in stream order. */
#define ATTUNE_OVERLAP 0x400u
/* Together with ATTUNE_OVERLAP: K and V are not written by that kernel, and may be read before it has ended. */
#define ATTUNE_KV_READY 0x800u
/* f32 on a CPU with AMX: products may take 16 significant bits of q, k, v and the weights instead of 24, which is
 * faster. Elsewhere, and for other types, it changes nothing. */
#define ATTUNE_F32_HIGH 0x1000u
/* Since ABI version 3, of attune_backward_desc alone. */
#define ATTUNE_DLSE 0x2000u  /* args.dlse: the gradient that arrives at the log-sum-exp */
#define ATTUNE_DSINK 0x4000u /* with ATTUNE_SINK: args.dsink receives the gradient of the sinks */
#define ATTUNE_DBIAS 0x8000u /* with ATTUNE_BIAS: args.dbias receives the gradient of the bias */
/* Sums may be formed in an order that changes from call to call, where that is faster. Without it a backward gives the
 * same bits each time. */
#define ATTUNE_ANY_ORDER 0x10000u

/* Strides of q, k, v, o, lse and of their gradients, in elements; 0 and negative ones are legal. `batch` is not read
 * for packed sequences. No two elements of an output may share memory: in order of size, each of its strides steps over
 * all that the smaller ones reach. */
typedef struct attune_strides {
  int64_t batch;
  int64_t row;
  int64_t head;
} attune_strides;

/* Strides of bias, mask and dbias, in elements; 0 broadcasts. */
typedef struct attune_score_strides {
  int64_t batch;
  int64_t head;
  int64_t query;
  int64_t key;
} attune_score_strides;

/* softmax(mask(softcap(scale * q k^T) + bias)) v.
 *
 * A row that sees no key gives output 0 and LSE -inf; with a sink, output 0 and LSE = sink.
 * Packed: q is (total_q, heads_q, dim_qk), k and v (total_k, heads_kv, ...); seq_q and seq_k are upper
 * bounds of the single lengths. Those lie where the tensors do. Offsets begin with 0, do not decrease and end with
 * total_q or total_k; no length is beyond its bound, and used_q and used_k are 0..length. The CPU refuses other
 * lengths. A GPU clamps them: nothing outside the tensors is read or written, but rows that belong to no sequence stay
 * as they were. */
typedef struct attune_forward_desc {
  uint32_t struct_size; /* sizeof(attune_forward_desc) */
  attune_features features;
  attune_device_kind device_kind; /* where every pointer of the call lives */
  int32_t device_index;           /* ordinal of the CUDA device; 0 for the CPU */
  attune_dtype dtype;             /* of q, k, v and o */
  attune_dtype bias_dtype;        /* dtype of the bias: equal to `dtype`, or f32 */
  attune_causal causal;
  uint32_t reserved; /* 0 */

  int64_t batch;
  int64_t heads_q;
  int64_t heads_kv; /* divides heads_q; each KV head serves heads_q / heads_kv query heads */
  int64_t seq_q;
  int64_t seq_k;
  int64_t dim_qk;  /* 1..512 */
  int64_t dim_v;   /* 1..512 */
  int64_t total_q; /* packed: rows of q and o; otherwise 0 */
  int64_t total_k; /* packed: rows of k and v; otherwise 0 */

  attune_strides q, k, v, o;
  attune_strides lse; /* float32; usually {heads_q * seq_q, 1, seq_q}, packed {0, 1, total_q} */
  attune_score_strides bias;
  attune_score_strides mask;

  /* Row i sees keys d - window_left .. d + window_right, d = i top-left, i + seq_k - seq_q otherwise.
   * -1 is unbounded. */
  int64_t window_left;
  int64_t window_right;
  float scale;
  float softcap; /* s becomes softcap * tanh(s / softcap); > 0 */
} attune_forward_desc;

typedef struct attune_forward_args {
  uint32_t struct_size; /* sizeof(attune_forward_args) */
  uint32_t reserved;    /* 0 */
  const void *q, *k, *v;
  void* o;
  float* lse;                  /* ATTUNE_LSE */
  const float* sink;           /* ATTUNE_SINK: heads_q */
  const void* bias;            /* ATTUNE_BIAS */
  const uint8_t* mask;         /* ATTUNE_MASK */
  const int32_t* cu_seqlens_q; /* ATTUNE_PACKED: batch + 1 */
  const int32_t* cu_seqlens_k; /* ATTUNE_PACKED: batch + 1 */
  const int32_t* used_q;       /* ATTUNE_USED_Q: batch */
  const int32_t* used_k;       /* ATTUNE_USED_K: batch */
  void* workspace;             /* at least attune_workspace_bytes, 256-byte aligned */
  uint64_t workspace_bytes;
} attune_forward_args;

/* The gradients of attune_forward. The fields up to softcap are those of the forward call, with the same meaning: its
 * features, too, of which ATTUNE_LSE may be left out, for the log-sum-exp is always read.
 *
 * A row that sees no key has dq 0 and adds nothing to dk and dv; a key that no row sees, in use or not, has dk and dv
 * 0. dbias is summed over the dimensions that the bias broadcasts. */
typedef struct attune_backward_desc {
  uint32_t struct_size; /* sizeof(attune_backward_desc) */
  attune_features features;
  attune_device_kind device_kind;
  int32_t device_index;
  attune_dtype dtype;      /* of q, k, v, o, dout, dq, dk and dv */
  attune_dtype bias_dtype; /* of the bias and of dbias */
  attune_causal causal;
  uint32_t reserved; /* 0 */

  int64_t batch;
  int64_t heads_q;
  int64_t heads_kv;
  int64_t seq_q;
  int64_t seq_k;
  int64_t dim_qk;
  int64_t dim_v;
  int64_t total_q;
  int64_t total_k;

  attune_strides q, k, v, o;
  attune_strides lse;
  attune_score_strides bias;
  attune_score_strides mask;

  int64_t window_left;
  int64_t window_right;
  float scale;
  float softcap;

  attune_strides dout;
  attune_strides dlse; /* ATTUNE_DLSE */
  attune_strides dq, dk, dv;
  attune_score_strides dbias; /* ATTUNE_DBIAS: 0 where, and only where, `bias` is 0 */
} attune_backward_desc;

typedef struct attune_backward_args {
  uint32_t struct_size; /* sizeof(attune_backward_args) */
  uint32_t reserved;    /* 0 */
  const void *q, *k, *v;
  const void* o;               /* as attune_forward wrote it */
  const float* lse;            /* as attune_forward wrote it */
  const float* sink;           /* ATTUNE_SINK: heads_q */
  const void* bias;            /* ATTUNE_BIAS */
  const uint8_t* mask;         /* ATTUNE_MASK */
  const int32_t* cu_seqlens_q; /* ATTUNE_PACKED: batch + 1 */
  const int32_t* cu_seqlens_k; /* ATTUNE_PACKED: batch + 1 */
  const int32_t* used_q;       /* ATTUNE_USED_Q: batch */
  const int32_t* used_k;       /* ATTUNE_USED_K: batch */
  const void* dout;            /* the gradient that arrives at o */
  const float* dlse;           /* ATTUNE_DLSE: the one that arrives at lse */
  void *dq, *dk, *dv;
  float* dsink;    /* ATTUNE_DSINK: heads_q */
  void* dbias;     /* ATTUNE_DBIAS */
  void* workspace; /* at least attune_backward_workspace_bytes, 256-byte aligned */
  uint64_t workspace_bytes;
} attune_backward_args;

/* Joins partial results over disjoint key sets: lse = log(sum exp(lse_i)), o = sum exp(lse_i - lse) o_i.
 * An output may be one of the parts. */
#define ATTUNE_MERGE_MAX_PARTS 256
typedef struct attune_merge_desc {
  uint32_t struct_size;
  uint32_t reserved; /* 0 */
  attune_device_kind device_kind;
  int32_t device_index;
  attune_dtype part_dtype; /* of every part */
  attune_dtype dtype;      /* of o */
  int64_t parts;           /* 1..ATTUNE_MERGE_MAX_PARTS */
  int64_t batch;
  int64_t heads;
  int64_t rows;
  int64_t dim;                     /* 1..512 */
  attune_strides part_o, part_lse; /* of every part */
  attune_strides o, lse;
} attune_merge_desc;

typedef struct attune_merge_args {
  uint32_t struct_size;
  uint32_t reserved;            /* 0 */
  const void* const* part_o;    /* host array of `parts` pointers */
  const float* const* part_lse; /* host array of `parts` pointers */
  void* o;
  float* lse; /* may be NULL */
} attune_merge_args;

/* Calls body(body_context, i) once for each i of 0..count-1, in any order, on any threads, and returns
 * when all are done. */
typedef void (*attune_parallel_for)(void* user, int64_t count, void (*body)(void* body_context, int64_t index),
                                    void* body_context);

/* The type of GOMP_parallel, by which compiled programs start a parallel region of OpenMP. The runtimes of GCC, LLVM
 * and Intel all have it. */
typedef void (*attune_gomp_parallel)(void (*body)(void* data), void* data, unsigned threads, unsigned flags);

typedef struct attune_options {
  uint32_t struct_size;
  int32_t threads;                  /* of the library's own pool; 0: one per CPU the process may use */
  attune_parallel_for parallel_for; /* NULL: the library's own pool */
  void* parallel_for_user;
  const char* kernel; /* NULL, or the one kernel this context may use, as listed by `attune info` */

  /* Since ABI version 2. GOMP_parallel and omp_get_max_threads of the OpenMP runtime that the process computes with
   * anyway: then the library uses its threads instead of starting more, as many as omp_get_max_threads says at each
   * call. Both or neither, and not together with parallel_for. In a forked child, where such a runtime would hang, the
   * library's own pool takes over. */
  attune_gomp_parallel gomp_parallel;
  int (*omp_get_max_threads)(void);
} attune_options;

typedef struct attune_context attune_context;

/* options may be NULL. */
ATTUNE_API attune_status attune_create(const attune_options* options, attune_context** context);
ATTUNE_API void attune_destroy(attune_context* context);

/* Chooses, compiles and loads what attune_forward needs for this problem, so that the call itself can be
 * captured in a CUDA graph. The context keeps that until it is destroyed. What other calls needed it keeps for the 4096
 * descriptors used last. */
ATTUNE_API attune_status attune_prepare(attune_context* context, const attune_forward_desc* desc);
ATTUNE_API attune_status attune_workspace_bytes(attune_context* context, const attune_forward_desc* desc,
                                                uint64_t* bytes);

/* stream: a CUstream for CUDA devices, otherwise NULL. On the CPU the call returns when it is done. */
ATTUNE_API attune_status attune_forward(attune_context* context, const attune_forward_desc* desc,
                                        const attune_forward_args* args, void* stream);
ATTUNE_API attune_status attune_merge(attune_context* context, const attune_merge_desc* desc,
                                      const attune_merge_args* args, void* stream);

/* Writes what would run for this problem and why, as text with a closing 0, and its full length (without
 * the 0) to *length, as snprintf does. buffer may be NULL when capacity is 0. */
ATTUNE_API attune_status attune_explain(attune_context* context, const attune_forward_desc* desc, char* buffer,
                                        size_t capacity, size_t* length);

/* Since ABI version 3: the same four for gradients. */
ATTUNE_API attune_status attune_backward_prepare(attune_context* context, const attune_backward_desc* desc);
ATTUNE_API attune_status attune_backward_workspace_bytes(attune_context* context, const attune_backward_desc* desc,
                                                         uint64_t* bytes);
ATTUNE_API attune_status attune_backward(attune_context* context, const attune_backward_desc* desc,
                                         const attune_backward_args* args, void* stream);
ATTUNE_API attune_status attune_backward_explain(attune_context* context, const attune_backward_desc* desc,
                                                 char* buffer, size_t capacity, size_t* length);

/* The sentence that belongs to this thread's last failed call; "" if none failed. */
ATTUNE_API const char* attune_last_error(void);
ATTUNE_API uint32_t attune_abi_version(void);

#ifdef __cplusplus
}
#endif
#endif
