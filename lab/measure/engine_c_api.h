/* The measuring engine for hosts in other languages: libattune_lab_engine.so. The package python/attune/lab is one.
 *
 *   attune_lab_session* session;
 *   attune_lab_session_create("{\"mode\": \"steady\"}", 0, &session);
 *   attune_lab_add_graph(session, &cudnn);        // the first one is the baseline
 *   attune_lab_add_graph(session, &cudnn_again);  // with ATTUNE_LAB_TWIN: its second copy, the noise floor
 *   attune_lab_add_graph(session, &mine);
 *   const char* json;
 *   if (attune_lab_run(session, NULL, NULL, &json) != 0) puts(attune_lab_last_error());
 *   attune_lab_session_destroy(session);
 *
 * A session belongs to one thread. Functions return 0 for success; otherwise attune_lab_last_error() has a sentence.
 */
#ifndef ATTUNE_LAB_ENGINE_C_API_H
#define ATTUNE_LAB_ENGINE_C_API_H

#include <stddef.h>
#include <stdint.h>

#include "attune/attune_contender.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ATTUNE_LAB_API __attribute__((visibility("default")))

/* Grows by one with every change to this file that an older host would notice. */
#define ATTUNE_LAB_ENGINE_VERSION 1

typedef struct attune_lab_session attune_lab_session;

typedef int32_t attune_lab_role;
enum { ATTUNE_LAB_CONTENDER = 0, ATTUNE_LAB_TWIN = 1 };

/* device_index -1: no GPU, calls only. protocol_json: an object with those fields of the protocol that differ from the
 * defaults (docs/measuring.md), or NULL. */
ATTUNE_LAB_API int32_t attune_lab_session_create(const char* protocol_json, int32_t device_index,
                                                 attune_lab_session** session);
ATTUNE_LAB_API void attune_lab_session_destroy(attune_lab_session* session);

/* A contender that is a CUDA graph captured by the host. It must be linear.
 *
 * With `capture` the engine asks for graphs of as many calls as it needs, and for new ones between the rounds of short
 * problems. Each stays the host's, and must live until the next capture or the end of the session. Without, `graph` is
 * replayed as it is in every round. */
typedef struct attune_lab_graph {
  uint32_t struct_size; /* sizeof(attune_lab_graph) */
  attune_lab_role role;
  const char* name;
  const char* facts_json; /* an object of strings kept in the result, or NULL */
  /* Captures `calls` calls on buffers filled from the seed (new ones whenever the seed is another) and returns the
   * CUgraphExec; NULL is a failure. */
  void* (*capture)(void* user, int32_t calls, uint64_t seed);
  void* user;
  void* graph;      /* CUgraphExec; read only without `capture` */
  int32_t calls;    /* in `graph`: enough for a replay of 2 ms */
  int32_t reserved; /* 0 */
} attune_lab_graph;
ATTUNE_LAB_API int32_t attune_lab_add_graph(attune_lab_session* session, const attune_lab_graph* graph);

/* A function on this thread, timed by the wall clock: CPU implementations, and the host side of GPU calls. */
typedef struct attune_lab_call {
  uint32_t struct_size; /* sizeof(attune_lab_call) */
  attune_lab_role role;
  const char* name;
  void (*call)(void* user);
  void (*make)(void* user, uint64_t seed); /* makes the data; may be NULL */
  void* user;
} attune_lab_call;
ATTUNE_LAB_API int32_t attune_lab_add_call(attune_lab_session* session, const attune_lab_call* call);

/* Called between batches with the share of the run that is done, 0 to 1; a result other than 0 ends the run. */
typedef int32_t (*attune_lab_progress)(void* user, const char* contender, double done);

/* The result (measurement and analysis, docs/measuring.md) as JSON, owned by the session until its next run. */
ATTUNE_LAB_API int32_t attune_lab_run(attune_lab_session* session, attune_lab_progress progress, void* user,
                                      const char** result_json);

/* Facts about machine and card as JSON, for records; owned by the session. */
ATTUNE_LAB_API int32_t attune_lab_environment(attune_lab_session* session, const char** facts_json);

/* Judges a result read from elsewhere: the analysis of a measurement, recomputed. Owned by the session. */
ATTUNE_LAB_API int32_t attune_lab_analyse(attune_lab_session* session, const char* measurement_json,
                                          const char** analysis_json);

/* Does what the attune command asks of a process of its own: judges and times code from outside, some of it functions
 * of this host. `job_json` is what the command wrote to the standard input, and the answer goes to the descriptor that
 * it named. Such a function is called `callable` in the job and stands behind `contender`, which must outlive the call.
 */
typedef struct attune_lab_callable {
  const char* callable; /* module:function */
  const attune_contender_api* contender;
} attune_lab_callable;
ATTUNE_LAB_API int32_t attune_lab_serve(const char* job_json, int32_t descriptor, const attune_lab_callable* callables,
                                        int32_t count);

/* The attune command in this process: argv as main() has it, the result is the exit status. `self` is how another
 * process of it is started, such as {"python3", "-m", "attune.command"}. */
ATTUNE_LAB_API int32_t attune_lab_command(int32_t argc, char** argv, const char* const* self, int32_t self_count);

ATTUNE_LAB_API const char* attune_lab_last_error(void);
ATTUNE_LAB_API uint32_t attune_lab_engine_version(void);

#ifdef __cplusplus
}
#endif
#endif
