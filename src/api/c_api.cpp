// The C interface: each function is guard(...) around one call.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>

#include "attune/attune.h"
#include "core/error.hpp"
#include "dispatch/process_context.hpp"

struct attune_context final : attune::ProcessContext {
  using ProcessContext::ProcessContext;
};

namespace attune {
namespace {

// The sentence of this thread's last failure. A fixed buffer: reporting an error must not need memory.
thread_local char last_error[1024] = "";

attune_status report(attune_status status, const char* text) {
  std::strncpy(last_error, text, sizeof last_error - 1);
  return status;
}

template <typename Call>
attune_status guard(Call&& call) {
  try {
    call();
    return ATTUNE_OK;
  } catch (const Error& error) {
    return report(error.status, error.what());
  } catch (const std::bad_alloc&) {
    return report(ATTUNE_OUT_OF_MEMORY, "out of host memory");
  } catch (const std::exception& error) {
    return report(ATTUNE_INTERNAL_ERROR, error.what());
  } catch (...) {
    return report(ATTUNE_INTERNAL_ERROR, "an exception of unknown type");
  }
}

template <typename T>
void check_not_null(const T* pointer, const char* name) {
  if (pointer == nullptr) fail(ATTUNE_INVALID_ARGUMENT, "{} is NULL; it must point to a valid object", name);
}

template <typename T>
T& required(T* pointer, const char* name) {
  check_not_null(pointer, name);
  return *pointer;
}

Context& context_here(attune_context* context) { return required(context, "context").here(); }

// Accepts the struct of an older header (shorter: the missing fields are 0) and of a newer one, as long as the
// fields this library does not know are 0.
template <typename T>
T versioned(const T* pointer, const char* name) {
  check_not_null(pointer, name);
  // By bytes: the object may be shorter than T, so it must not be touched as one.
  static_assert(offsetof(T, struct_size) == 0);
  uint32_t size = 0;
  std::memcpy(&size, pointer, sizeof size);
  constexpr uint32_t smallest = 8;
  if (size < smallest || size > 4096)
    fail(ATTUNE_INVALID_ARGUMENT, "{}->struct_size is {}; it must be sizeof(*{}), {} in this version", name, size, name,
         sizeof(T));
  const char* bytes = reinterpret_cast<const char*>(pointer);
  for (uint32_t i = sizeof(T); i < size; ++i)
    if (bytes[i] != 0)
      fail(ATTUNE_INVALID_ARGUMENT,
           "{}: byte {} is not 0; this library (ABI {}) does not know that field, so it must be 0", name, i,
           ATTUNE_ABI_VERSION);
  T copy{};
  std::memcpy(&copy, pointer, std::min<size_t>(size, sizeof(T)));
  copy.struct_size = sizeof(T);
  return copy;
}

// A stream given to a CPU call means the caller took the tensors to be elsewhere.
void check_stream(attune_device_kind device_kind, const void* stream) {
  if (device_kind == ATTUNE_CPU && stream != nullptr)
    fail(ATTUNE_INVALID_ARGUMENT, "stream is {}; it must be NULL when desc.device_kind is ATTUNE_CPU", stream);
}

template <typename Desc>
attune_status explain(attune_context* context, const Desc* desc, char* buffer, size_t capacity, size_t* length) {
  return guard([&] {
    if (buffer == nullptr && capacity != 0)
      fail(ATTUNE_INVALID_ARGUMENT, "buffer is NULL; it must hold capacity ({}) bytes", capacity);
    const std::string text = context_here(context).explain(problem_from(versioned(desc, "desc")));
    if (length != nullptr) *length = text.size();
    if (capacity == 0) return;
    const size_t copied = std::min(capacity - 1, text.size());
    std::memcpy(buffer, text.data(), copied);
    buffer[copied] = '\0';
  });
}

}  // namespace
}  // namespace attune

using attune::check_stream;
using attune::context_here;
using attune::explain;
using attune::guard;
using attune::operands_of;
using attune::problem_from;
using attune::required;
using attune::versioned;

attune_status attune_create(const attune_options* options, attune_context** context) {
  return guard([&] {
    required(context, "context") = nullptr;
    *context = new attune_context(options == nullptr ? attune_options{} : versioned(options, "options"));
  });
}

void attune_destroy(attune_context* context) { delete context; }

attune_status attune_prepare(attune_context* context, const attune_forward_desc* desc) {
  return guard([&] { context_here(context).prepare(problem_from(versioned(desc, "desc"))); });
}

attune_status attune_workspace_bytes(attune_context* context, const attune_forward_desc* desc, uint64_t* bytes) {
  return guard(
      [&] { required(bytes, "bytes") = context_here(context).plan_for(versioned(desc, "desc"))->workspace_bytes(); });
}

attune_status attune_forward(attune_context* context, const attune_forward_desc* desc, const attune_forward_args* args,
                             void* stream) {
  return guard([&] {
    const auto known_desc = versioned(desc, "desc");
    check_stream(known_desc.device_kind, stream);
    context_here(context).forward(known_desc, operands_of(versioned(args, "args")), stream);
  });
}

attune_status attune_backward_prepare(attune_context* context, const attune_backward_desc* desc) {
  return guard([&] { context_here(context).prepare(problem_from(versioned(desc, "desc"))); });
}

attune_status attune_backward_workspace_bytes(attune_context* context, const attune_backward_desc* desc,
                                              uint64_t* bytes) {
  return guard(
      [&] { required(bytes, "bytes") = context_here(context).plan_for(versioned(desc, "desc"))->workspace_bytes(); });
}

attune_status attune_backward(attune_context* context, const attune_backward_desc* desc,
                              const attune_backward_args* args, void* stream) {
  return guard([&] {
    const auto known_desc = versioned(desc, "desc");
    check_stream(known_desc.device_kind, stream);
    context_here(context).backward(known_desc, operands_of(versioned(args, "args")), stream);
  });
}

attune_status attune_merge(attune_context* context, const attune_merge_desc* desc, const attune_merge_args* args,
                           void* stream) {
  return guard([&] {
    const auto known_desc = versioned(desc, "desc");
    check_stream(known_desc.device_kind, stream);
    context_here(context).merge(known_desc, operands_of(versioned(args, "args")), stream);
  });
}

attune_status attune_explain(attune_context* context, const attune_forward_desc* desc, char* buffer, size_t capacity,
                             size_t* length) {
  return explain(context, desc, buffer, capacity, length);
}

attune_status attune_backward_explain(attune_context* context, const attune_backward_desc* desc, char* buffer,
                                      size_t capacity, size_t* length) {
  return explain(context, desc, buffer, capacity, length);
}

const char* attune_last_error(void) { return attune::last_error; }
uint32_t attune_abi_version(void) { return ATTUNE_ABI_VERSION; }
