// The engine behind C functions: each is guard(...) around a few calls.
#include "lab/measure/engine_c_api.h"

#include <string>

#include "core/error.hpp"
#include "lab/cmd/command_line.hpp"
#include "lab/measure/cpu_contender.hpp"
#include "lab/measure/cuda_gpu.hpp"
#include "lab/measure/engine.hpp"
#include "lab/measure/environment.hpp"
#include "lab/measure/graph_contender.hpp"
#include "lab/measure/result_json.hpp"
#include "lab/trial/job.hpp"
#include "lab/trial/places.hpp"

struct attune_lab_session {
  attune::lab::Protocol protocol;
  std::unique_ptr<attune::lab::CudaGpu> gpu;  // before the contenders, which use it until they are gone
  std::unique_ptr<attune::lab::Session> session;
  std::string result, environment, analysis;
};

namespace attune::lab {
namespace {

using nlohmann::json;

thread_local std::string last_error;

template <typename Call>
int32_t guard(Call&& call) {
  try {
    call();
    return ATTUNE_OK;
  } catch (const Error& error) {
    last_error = error.what();
    return error.status;
  } catch (const std::exception& error) {
    last_error = error.what();
    return ATTUNE_INTERNAL_ERROR;
  }
}

template <typename T>
T& required(T* pointer, const char* name) {
  if (pointer == nullptr) fail(ATTUNE_INVALID_ARGUMENT, "{} is NULL", name);
  return *pointer;
}

template <typename T>
const T& sized(const T* pointer, const char* name) {
  if (required(pointer, name).struct_size != sizeof(T))
    fail(ATTUNE_INVALID_ARGUMENT, "{}->struct_size is {}; it is {} in this version", name, pointer->struct_size,
         sizeof(T));
  return *pointer;
}

json parse(const char* text, const char* what) {
  json parsed = json::parse(text, nullptr, false);
  if (parsed.is_discarded()) fail(ATTUNE_INVALID_ARGUMENT, "{} is not JSON", what);
  return parsed;
}

Facts facts_of(const char* text) {
  if (text == nullptr) return {};
  try {
    return parse(text, "facts_json").get<Facts>();
  } catch (const json::exception&) {
    fail(ATTUNE_INVALID_ARGUMENT, "facts_json is not an object of strings");
  }
}

void add(attune_lab_session& session, attune_lab_role role, std::unique_ptr<Contender> contender) {
  if (role == ATTUNE_LAB_TWIN)
    session.session->add_twin(std::move(contender));
  else if (role == ATTUNE_LAB_CONTENDER)
    session.session->add(std::move(contender));
  else
    fail(ATTUNE_INVALID_ARGUMENT, "role is {}; it is 0 (contender) or 1 (twin)", role);
}

std::string name_given(const char* name) {
  if (name == nullptr || *name == '\0') fail(ATTUNE_INVALID_ARGUMENT, "a contender needs a name");
  return name;
}

}  // namespace
}  // namespace attune::lab

using namespace attune::lab;

int32_t attune_lab_session_create(const char* protocol_json, int32_t device_index, attune_lab_session** session) {
  return guard([&] {
    required(session, "session") = nullptr;
    auto made = std::make_unique<attune_lab_session>();
    if (protocol_json != nullptr) made->protocol = protocol_with(parse(protocol_json, "protocol_json"));
    if (device_index >= 0) made->gpu = std::make_unique<CudaGpu>(device_index);
    made->session = std::make_unique<Session>(made->protocol);
    *session = made.release();
  });
}

void attune_lab_session_destroy(attune_lab_session* session) { delete session; }

int32_t attune_lab_add_graph(attune_lab_session* session, const attune_lab_graph* graph) {
  return guard([&] {
    const attune_lab_graph given = sized(graph, "graph");
    if (required(session, "session").gpu == nullptr)
      attune::fail(ATTUNE_INVALID_ARGUMENT, "this session was made without a GPU (device_index -1)");
    const std::string name = name_given(given.name);
    Facts facts = facts_of(given.facts_json);
    const auto capture = [given](int calls, uint64_t seed) { return given.capture(given.user, calls, seed); };
    auto source = given.capture != nullptr ? captured_graph(name, capture, std::move(facts))
                                           : fixed_graph(name, given.graph, given.calls, std::move(facts));
    add(*session, given.role, graph_contender(std::move(source), *session->gpu));
  });
}

int32_t attune_lab_add_call(attune_lab_session* session, const attune_lab_call* call) {
  return guard([&] {
    const attune_lab_call given = sized(call, "call");
    required(session, "session");
    if (given.call == nullptr) attune::fail(ATTUNE_INVALID_ARGUMENT, "call->call is NULL");
    std::function<void(uint64_t)> make;
    if (given.make != nullptr) make = [given](uint64_t seed) { given.make(given.user, seed); };
    add(*session, given.role,
        std::make_unique<CpuContender>(name_given(given.name), [given] { given.call(given.user); }, std::move(make)));
  });
}

int32_t attune_lab_run(attune_lab_session* session, attune_lab_progress progress, void* user,
                       const char** result_json) {
  return guard([&] {
    required(session, "session");
    required(result_json, "result_json") = nullptr;
    ProgressCallback report;
    if (progress != nullptr)
      report = [&](const Progress& now) {
        const double done = now.expected_seconds > 0 ? now.elapsed_seconds / now.expected_seconds : 0;
        if (progress(user, std::string(now.contender).c_str(), done < 1 ? done : 1) != 0)
          attune::fail(ATTUNE_INVALID_ARGUMENT, "ended by the progress function");
      };
    session->result = to_json(session->session->run(report)).dump();
    *result_json = session->result.c_str();
  });
}

int32_t attune_lab_environment(attune_lab_session* session, const char** facts_json) {
  return guard([&] {
    Facts facts = host_facts();
    if (required(session, "session").gpu != nullptr) {
      facts.merge(session->gpu->facts());
      facts.merge(session->gpu->state("now_"));
    }
    session->environment = json(facts).dump();
    required(facts_json, "facts_json") = session->environment.c_str();
  });
}

int32_t attune_lab_analyse(attune_lab_session* session, const char* measurement_json, const char** analysis_json) {
  return guard([&] {
    required(session, "session");
    required(analysis_json, "analysis_json") = nullptr;
    const json measurement = parse(&required(measurement_json, "measurement_json"), "measurement_json");
    session->analysis = to_json(analyse(measurement_from_json(measurement))).dump();
    *analysis_json = session->analysis.c_str();
  });
}

int32_t attune_lab_serve(const char* job_json, int32_t descriptor, const attune_lab_callable* callables,
                         int32_t count) {
  return guard([&] {
    for (int32_t i = 0; i < count; ++i) {
      const attune_lab_callable& given = (&required(callables, "callables"))[i];
      provide_callable(&required(given.callable, "callables[i].callable"),
                       &required(given.contender, "callables[i].contender"));
    }
    serve(parse(&required(job_json, "job_json"), "job_json"), descriptor);
  });
}

int32_t attune_lab_command(int32_t argc, char** argv, const char* const* self, int32_t self_count) {
  set_own_command({self, self + self_count});
  return run_command_line(argc, argv);
}

const char* attune_lab_last_error(void) { return last_error.c_str(); }
uint32_t attune_lab_engine_version(void) { return ATTUNE_LAB_ENGINE_VERSION; }
