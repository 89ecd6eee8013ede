#include "lab/measure/callee.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <vector>

#include "attune/attune_contender.h"
#include "core/error.hpp"
#include "dispatch/context.hpp"
#include "gpu/kernel.hpp"

namespace attune::lab {
namespace {

// Shared libraries stay open: their threads, plans and CUDA modules may outlive the measurement.
void* open_library(const std::string& path) {
  // A name without a slash would be searched for elsewhere, and a libattune already loaded would answer to it.
  const std::string file = std::filesystem::absolute(path).string();
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) fail(ATTUNE_INVALID_ARGUMENT, "{}: cannot be loaded: {}", path, dlerror());
  return handle;
}

template <typename Function>
void find(void* handle, const std::string& path, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, symbol));
  if (function == nullptr) fail(ATTUNE_INVALID_ARGUMENT, "{}: has no function {}", path, symbol);
}

// What a library's C functions make of a problem: there is one such object per operation that has C functions.
class LibraryCall {
 public:
  explicit LibraryCall(const Library& library) : library_(library) {}
  virtual ~LibraryCall() = default;
  virtual attune_status prepare(attune_context* context) = 0;
  virtual attune_status workspace_bytes(attune_context* context, uint64_t* bytes) = 0;
  virtual attune_status run(attune_context* context, const Operands& operands, void* stream) = 0;
  virtual attune_status explain(attune_context* context, char* text, size_t capacity, size_t* length) = 0;

 protected:
  const Library& library_;
};

class ForwardCall final : public LibraryCall {
 public:
  ForwardCall(const Library& library, const Problem& problem) : LibraryCall(library), desc_(desc_from(problem)) {}
  attune_status prepare(attune_context* context) override { return library_.prepare(context, &desc_); }
  attune_status workspace_bytes(attune_context* context, uint64_t* bytes) override {
    return library_.workspace_bytes(context, &desc_, bytes);
  }
  attune_status run(attune_context* context, const Operands& operands, void* stream) override {
    const attune_forward_args args = forward_args_of(operands);
    return library_.forward(context, &desc_, &args, stream);
  }
  attune_status explain(attune_context* context, char* text, size_t capacity, size_t* length) override {
    return library_.explain(context, &desc_, text, capacity, length);
  }

 private:
  const attune_forward_desc desc_;
};

class BackwardCall final : public LibraryCall {
 public:
  BackwardCall(const Library& library, const Problem& problem)
      : LibraryCall(library), desc_(backward_desc_from(problem)) {}
  attune_status prepare(attune_context* context) override { return library_.backward_prepare(context, &desc_); }
  attune_status workspace_bytes(attune_context* context, uint64_t* bytes) override {
    return library_.backward_workspace_bytes(context, &desc_, bytes);
  }
  attune_status run(attune_context* context, const Operands& operands, void* stream) override {
    const attune_backward_args args = backward_args_of(operands);
    return library_.backward(context, &desc_, &args, stream);
  }
  attune_status explain(attune_context* context, char* text, size_t capacity, size_t* length) override {
    return library_.backward_explain(context, &desc_, text, capacity, length);
  }

 private:
  const attune_backward_desc desc_;
};

// A merge needs no preparation of its own and no working memory, and the C interface does not explain it.
class MergeCall final : public LibraryCall {
 public:
  MergeCall(const Library& library, const Problem& problem) : LibraryCall(library), desc_(merge_desc_from(problem)) {}
  attune_status prepare(attune_context*) override { return ATTUNE_OK; }
  attune_status workspace_bytes(attune_context*, uint64_t* bytes) override {
    *bytes = 0;
    return ATTUNE_OK;
  }
  attune_status run(attune_context* context, const Operands& operands, void* stream) override {
    const attune_merge_args args = merge_args_of(operands);
    return library_.merge(context, &desc_, &args, stream);
  }
  attune_status explain(attune_context*, char* text, size_t capacity, size_t* length) override {
    *length = 0;
    if (capacity > 0) text[0] = 0;
    return ATTUNE_OK;
  }

 private:
  const attune_merge_desc desc_;
};

std::unique_ptr<LibraryCall> library_call(const Library& library, const Problem& problem) {
  if (problem.operation == &forward_operation) return std::make_unique<ForwardCall>(library, problem);
  if (problem.operation == &backward_operation && library.backward != nullptr)
    return std::make_unique<BackwardCall>(library, problem);
  if (problem.operation == &merge_operation && library.merge != nullptr)
    return std::make_unique<MergeCall>(library, problem);
  return nullptr;
}

class LibraryCallee final : public Callee {
 public:
  LibraryCallee(std::string name, const Library& library, const Problem& problem, const std::string& kernel,
                int threads)
      : name_(std::move(name)), library_(library), call_(library_call(library_, problem)) {
    attune_options options{};
    options.struct_size = sizeof options;
    options.kernel = kernel.empty() ? nullptr : kernel.c_str();
    options.threads = threads;
    require(library_.create(&options, &context_));
    try {
      require(call_->prepare(context_));
      require(call_->workspace_bytes(context_, &workspace_bytes_));
    } catch (...) {
      library_.destroy(context_);
      throw;
    }
  }
  LibraryCallee(const LibraryCallee&) = delete;
  LibraryCallee& operator=(const LibraryCallee&) = delete;
  ~LibraryCallee() override { library_.destroy(context_); }

  std::string_view name() const override { return name_; }
  uint64_t workspace_bytes() const override { return workspace_bytes_; }
  void run(const Operands& operands, void* stream) override { require(call_->run(context_, operands, stream)); }

  Facts facts() const override {
    size_t length = 0;
    require(call_->explain(context_, nullptr, 0, &length));
    std::vector<char> text(length + 1);
    require(call_->explain(context_, text.data(), text.size(), &length));
    return {{"explain", text.data()}, {"library", library_.path.empty() ? "own" : library_.path}};
  }

 private:
  void require(attune_status status) const {
    if (status != ATTUNE_OK) throw Error(status, fmt::format("{}: {}", name_, library_.last_error()));
  }

  std::string name_;
  Library library_;
  std::unique_ptr<LibraryCall> call_;
  attune_context* context_ = nullptr;
  uint64_t workspace_bytes_ = 0;
};

// The functions that a plug-in offers. `from`: where they are, for the complaints.
void check_api(const attune_contender_api* api, const std::string& from) {
  if (api == nullptr) fail(ATTUNE_INVALID_ARGUMENT, "{}: {}() gave NULL", from, ATTUNE_CONTENDER_SYMBOL);
  if (api->version != ATTUNE_CONTENDER_VERSION || api->struct_size < sizeof(attune_contender_api))
    fail(ATTUNE_INVALID_ARGUMENT,
         "{}: made for version {} of attune_contender.h ({} bytes); this program knows {} ({})", from, api->version,
         api->struct_size, ATTUNE_CONTENDER_VERSION, sizeof(attune_contender_api));
  if (api->name == nullptr || api->create == nullptr || api->run == nullptr || api->destroy == nullptr ||
      api->last_error == nullptr)
    fail(ATTUNE_INVALID_ARGUMENT, "{}: one of name, create, run, destroy and last_error is NULL", from);
}

class ContenderCallee final : public Callee {
 public:
  ContenderCallee(const attune_contender_api& api, Facts facts, const Problem& problem, std::string name)
      : api_(api), facts_(std::move(facts)), name_(name.empty() ? api.name : std::move(name)) {
    if (problem.operation != &forward_operation)
      fail(ATTUNE_UNSUPPORTED, "{}: it computes {}, not {}", name_, forward_operation.name, problem.operation->name);
    const attune_forward_desc desc = desc_from(problem);
    require(api_.create(&desc, &instance_));
  }
  ContenderCallee(const ContenderCallee&) = delete;
  ContenderCallee& operator=(const ContenderCallee&) = delete;
  ~ContenderCallee() override { api_.destroy(instance_); }

  std::string_view name() const override { return name_; }
  uint64_t workspace_bytes() const override {
    return api_.workspace_bytes == nullptr ? 0 : api_.workspace_bytes(instance_);
  }
  void run(const Operands& operands, void* stream) override {
    const attune_forward_args args = forward_args_of(operands);
    require(api_.run(instance_, &args, stream));
  }
  Facts facts() const override { return facts_; }

 private:
  void require(int32_t status) const {
    if (status == 0) return;
    const char* text = api_.last_error();
    fail(ATTUNE_UNSUPPORTED, "{}: {}", name_, text == nullptr ? "refused without a reason" : text);
  }

  const attune_contender_api& api_;
  Facts facts_;
  std::string name_;
  void* instance_ = nullptr;
};

// A plan of this library, without the C interface around it.
class PlanCallee final : public Callee {
 public:
  // With a configuration of the caller's choice.
  PlanCallee(std::string name, const gpu::GpuKernel& kernel, const std::string& config, const Problem& problem)
      : name_(std::move(name)), context_(attune_options{}), plan_(kernel.plan_with(problem, context_, config)) {}
  // As a call would be planned.
  PlanCallee(std::string name, const attune_options& options, const Problem& problem)
      : name_(std::move(name)), context_(options), plan_(context_.plan_for(problem)) {}

  std::string_view name() const override { return name_; }
  uint64_t workspace_bytes() const override { return plan_->workspace_bytes(); }
  void run(const Operands& operands, void* stream) override { plan_->run(operands, stream); }
  Facts facts() const override { return {{"explain", plan_->describe()}, {"library", "own"}}; }

 private:
  std::string name_;
  Context context_;
  std::shared_ptr<const Plan> plan_;
};

}  // namespace

Library Library::own() {
  Library library;
  library.create = attune_create;
  library.destroy = attune_destroy;
  library.prepare = attune_prepare;
  library.workspace_bytes = attune_workspace_bytes;
  library.forward = attune_forward;
  library.merge = attune_merge;
  library.explain = attune_explain;
  library.backward_prepare = attune_backward_prepare;
  library.backward_workspace_bytes = attune_backward_workspace_bytes;
  library.backward = attune_backward;
  library.backward_explain = attune_backward_explain;
  library.last_error = attune_last_error;
  library.abi_version = attune_abi_version;
  return library;
}

Library Library::open(const std::string& path) {
  void* handle = open_library(path);
  Library library;
  library.path = path;
  find(handle, path, "attune_create", library.create);
  find(handle, path, "attune_destroy", library.destroy);
  find(handle, path, "attune_prepare", library.prepare);
  find(handle, path, "attune_workspace_bytes", library.workspace_bytes);
  find(handle, path, "attune_forward", library.forward);
  library.merge = reinterpret_cast<decltype(library.merge)>(dlsym(handle, "attune_merge"));
  find(handle, path, "attune_explain", library.explain);
  library.backward = reinterpret_cast<decltype(library.backward)>(dlsym(handle, "attune_backward"));
  if (library.backward != nullptr) {
    find(handle, path, "attune_backward_prepare", library.backward_prepare);
    find(handle, path, "attune_backward_workspace_bytes", library.backward_workspace_bytes);
    find(handle, path, "attune_backward_explain", library.backward_explain);
  }
  find(handle, path, "attune_last_error", library.last_error);
  find(handle, path, "attune_abi_version", library.abi_version);
  return library;
}

std::unique_ptr<Callee> library_callee(std::string name, const Library& library, const Problem& problem,
                                       const std::string& kernel, int threads) {
  if (library_call(library, problem) != nullptr)
    return std::make_unique<LibraryCallee>(std::move(name), library, problem, kernel, threads);
  if (!library.path.empty())
    fail(ATTUNE_UNSUPPORTED, "{}: has no function for the operation '{}'", library.path, problem.operation->name);
  attune_options options{};
  options.struct_size = sizeof options;
  options.kernel = kernel.empty() ? nullptr : kernel.c_str();
  options.threads = threads;
  return std::make_unique<PlanCallee>(std::move(name), options, problem);
}

std::unique_ptr<Callee> plugin_callee(const std::string& path, const Problem& problem, std::string name) {
  attune_contender_entry entry = nullptr;
  find(open_library(path), path, ATTUNE_CONTENDER_SYMBOL, entry);
  const attune_contender_api* api = entry();
  check_api(api, path);
  return std::make_unique<ContenderCallee>(*api, Facts{{"plugin", path}}, problem, std::move(name));
}

std::unique_ptr<Callee> contender_callee(const attune_contender_api& api, Facts facts, const Problem& problem,
                                         std::string name) {
  check_api(&api, name);
  return std::make_unique<ContenderCallee>(api, std::move(facts), problem, std::move(name));
}

std::unique_ptr<Callee> configured_callee(std::string name, const std::string& kernel, const std::string& config,
                                          const Problem& problem) {
  return std::make_unique<PlanCallee>(std::move(name), gpu::find_gpu_kernel(kernel), config, problem);
}

}  // namespace attune::lab
