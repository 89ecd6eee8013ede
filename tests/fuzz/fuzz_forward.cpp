// libFuzzer on the C entry point: bytes become a descriptor, lengths and contents. Every kernel of the CPU must then
// either refuse with a sentence and leave the outputs alone, or stay inside the tensors, write every row it owes, let
// no poison through, and give the same bits with any number of threads.
#include <fuzzer/FuzzedDataProvider.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>

#include "attune/attune.h"
#include "core/convert.hpp"
#include "core/problem.hpp"
#include "dispatch/kernel.hpp"
#include "tests/support/forward_call.hpp"

namespace {

using attune::test::ForwardCall;
using attune::test::Numbers;

constexpr double most_work = 4e6;       // multiplications of one call
constexpr int64_t most_span = 1 << 22;  // bytes of one tensor, padding included

// Of the call under way, for the report of a failure.
const attune_forward_desc* current_desc = nullptr;
struct NamedInReports {
  explicit NamedInReports(const attune_forward_desc& desc) { current_desc = &desc; }
  ~NamedInReports() { current_desc = nullptr; }
};

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz_forward: %s; last error: %s\n", what, attune_last_error());
  if (current_desc != nullptr)
    std::fprintf(stderr, "the call: %s\n", to_string(attune::problem_from(*current_desc)).c_str());
  std::abort();
}

struct Destroy {
  void operator()(attune_context* context) const { attune_destroy(context); }
};

// Contexts live over many runs, as they do in a program, but not for ever: their plans would fill the memory.
attune_context* context_for(const std::string& kernel, int threads) {
  struct Entry {
    std::unique_ptr<attune_context, Destroy> context;
    int uses = 0;
  };
  static std::map<std::pair<std::string, int>, Entry> contexts;
  Entry& entry = contexts[{kernel, threads}];
  if (entry.context == nullptr || ++entry.uses > 2000) {
    attune_options options{};
    options.struct_size = sizeof options;
    options.threads = threads;
    options.kernel = kernel.empty() ? nullptr : kernel.c_str();
    attune_context* made = nullptr;
    require(attune_create(&options, &made) == ATTUNE_OK, "attune_create failed");
    entry.context.reset(made);
    entry.uses = 0;
  }
  return entry.context.get();
}

// "" (the choice of the library) or one kernel of the CPU by name.
std::string consume_kernel(FuzzedDataProvider& bytes) {
  std::vector<std::string> names{""};
  for (const attune::Kernel* kernel : attune::kernels())
    if (kernel->device_kind() == attune::DeviceKind::cpu) names.emplace_back(kernel->name());
  return names[bytes.ConsumeIntegralInRange<size_t>(0, names.size() - 1)];
}

// Mostly 1..usual, at times 0, at times more.
int64_t consume_extent(FuzzedDataProvider& bytes, int64_t usual) {
  const int kind = bytes.ConsumeIntegralInRange(0, 31);
  return kind == 0 ? 0 : bytes.ConsumeIntegralInRange<int64_t>(1, kind < 3 ? 8 * usual : usual);
}

// Strides that fit the extents, in any order of the dimensions, with padding, and at times reversed or broadcast.
attune_strides consume_strides(FuzzedDataProvider& bytes, int64_t batch, int64_t rows, int64_t heads, int64_t dim,
                               bool output) {
  attune_strides strides{};
  struct Step {
    int64_t extent;
    int64_t* stride;
  };
  std::array<Step, 3> order{{{heads, &strides.head}, {rows, &strides.row}, {batch, &strides.batch}}};
  std::swap(order[0], order[bytes.ConsumeIntegralInRange<size_t>(0, 2)]);
  std::swap(order[1], order[bytes.ConsumeIntegralInRange<size_t>(1, 2)]);
  int64_t next = dim;
  for (const Step& step : order) {
    next += bytes.ConsumeIntegralInRange<int64_t>(0, 5);
    const int kind = bytes.ConsumeIntegralInRange(0, 9);
    *step.stride = kind == 0 ? -next : kind == 1 && !output ? 0 : next;
    next *= std::max<int64_t>(step.extent, 1);
  }
  return strides;
}

attune_score_strides consume_score_strides(FuzzedDataProvider& bytes, const attune_forward_desc& desc) {
  attune_score_strides strides{};
  int64_t next = 1;
  const auto step = [&](int64_t extent, int64_t& stride) {
    const int kind = bytes.ConsumeIntegralInRange(0, 5);
    stride = kind == 0 ? 0 : kind == 1 ? -next : next;
    next = next * std::max<int64_t>(extent, 1) + bytes.ConsumeIntegralInRange<int64_t>(0, 2);
  };
  step(desc.seq_k, strides.key);
  step(desc.seq_q, strides.query);
  step(desc.heads_q, strides.head);
  step(desc.batch, strides.batch);
  return strides;
}

attune_forward_desc consume_desc(FuzzedDataProvider& bytes) {
  attune_forward_desc desc{};
  desc.struct_size = sizeof desc;
  desc.features = bytes.ConsumeIntegral<uint32_t>() & 0xfffu;
  if ((desc.features & ATTUNE_OVERLAP) == 0) desc.features &= ~ATTUNE_KV_READY;
  desc.dtype = bytes.ConsumeIntegralInRange(0, 2);
  desc.bias_dtype = bytes.ConsumeBool() ? desc.dtype : ATTUNE_F32;
  desc.causal = bytes.ConsumeIntegralInRange(0, 2);
  desc.batch = consume_extent(bytes, 3);
  desc.heads_kv = consume_extent(bytes, 2);
  desc.heads_q = desc.heads_kv * consume_extent(bytes, 3);
  desc.seq_q = consume_extent(bytes, 40);
  desc.seq_k = consume_extent(bytes, 40);
  desc.dim_qk = std::max<int64_t>(consume_extent(bytes, 40), 1);
  desc.dim_v = bytes.ConsumeBool() ? desc.dim_qk : std::max<int64_t>(consume_extent(bytes, 40), 1);
  const bool packed = (desc.features & ATTUNE_PACKED) != 0;
  if (packed) {
    desc.total_q = consume_extent(bytes, 80);
    desc.total_k = consume_extent(bytes, 80);
  }
  const int64_t batch = packed ? 1 : desc.batch, rows_q = packed ? desc.total_q : desc.seq_q,
                rows_k = packed ? desc.total_k : desc.seq_k;
  desc.q = consume_strides(bytes, batch, rows_q, desc.heads_q, desc.dim_qk, false);
  desc.k = consume_strides(bytes, batch, rows_k, desc.heads_kv, desc.dim_qk, false);
  desc.v = consume_strides(bytes, batch, rows_k, desc.heads_kv, desc.dim_v, false);
  desc.o = consume_strides(bytes, batch, rows_q, desc.heads_q, desc.dim_v, true);
  desc.lse = consume_strides(bytes, batch, rows_q, desc.heads_q, 1, true);
  desc.bias = consume_score_strides(bytes, desc);
  desc.mask = consume_score_strides(bytes, desc);
  desc.window_left = bytes.ConsumeIntegralInRange<int64_t>(-1, 60);
  desc.window_right = bytes.ConsumeIntegralInRange<int64_t>(-1, 60);
  desc.scale = bytes.ConsumeFloatingPointInRange<float>(-4, 4);
  desc.softcap = bytes.ConsumeFloatingPointInRange<float>(0.01f, 60);
  return desc;
}

// One 32- or 64-bit field becomes anything at all.
void damage(FuzzedDataProvider& bytes, attune_forward_desc& desc) {
  if (bytes.ConsumeBool()) {
    const auto value = bytes.ConsumeIntegral<uint64_t>();
    const auto slot = bytes.ConsumeIntegralInRange<size_t>(1, sizeof desc / 8 - 1);
    std::memcpy(reinterpret_cast<char*>(&desc) + 8 * slot, &value, 8);
  } else {
    const auto value = bytes.ConsumeIntegral<uint32_t>();
    const auto slot = bytes.ConsumeIntegralInRange<size_t>(0, sizeof desc / 4 - 1);
    // A struct_size larger than the struct would make the library read past it, as it must.
    if (slot == 0 && value > sizeof desc) return;
    std::memcpy(reinterpret_cast<char*>(&desc) + 4 * slot, &value, 4);
  }
}

void require_refusal(attune_context* context, const attune_forward_desc& desc, attune_status status) {
  require(status != ATTUNE_INTERNAL_ERROR, "a descriptor led to an internal error");
  require(attune_last_error()[0] != '\0', "a refusal without a sentence");
  attune_forward_args args{};
  args.struct_size = sizeof args;
  require(attune_forward(context, &desc, &args, nullptr) == status, "attune_forward and its preparation disagree");
}

// Whether the tensors of a valid descriptor are small enough to exist.
bool affordable(const attune_forward_desc& desc) {
  double reach = 0;
  const auto along = [&reach](int64_t extent, int64_t stride) {
    reach = std::max(reach, static_cast<double>(extent) * std::abs(static_cast<double>(stride)));
  };
  const bool packed = (desc.features & ATTUNE_PACKED) != 0;
  const int64_t rows_q = packed ? desc.total_q : desc.seq_q, rows_k = packed ? desc.total_k : desc.seq_k;
  const int64_t seq_q = packed ? std::min(desc.seq_q, rows_q) : rows_q;
  const int64_t seq_k = packed ? std::min(desc.seq_k, rows_k) : rows_k;
  for (const auto* s : {&desc.q, &desc.o, &desc.lse}) {
    if (!packed) along(desc.batch, s->batch);
    along(rows_q, s->row);
    along(desc.heads_q, s->head);
  }
  for (const auto* s : {&desc.k, &desc.v}) {
    if (!packed) along(desc.batch, s->batch);
    along(rows_k, s->row);
    along(desc.heads_kv, s->head);
  }
  for (const auto* s : {&desc.bias, &desc.mask}) {
    along(desc.batch, s->batch);
    along(desc.heads_q, s->head);
    along(seq_q, s->query);
    along(seq_k, s->key);
  }
  const double rows = static_cast<double>(desc.batch + 1) * static_cast<double>(desc.heads_q + desc.heads_kv + 1);
  const double work = rows * static_cast<double>(rows_q + 1) * static_cast<double>(rows_k + 1) *
                      static_cast<double>(desc.dim_qk + desc.dim_v);
  return reach * 4 < static_cast<double>(most_span) && work < most_work;
}

// Finite inputs and a tame scale must give finite outputs, however much poison lies around them.
void require_clean(const ForwardCall& call) {
  call.o.for_each([&](const auto&, int64_t offset) {
    for (int64_t i = 0; i < call.o.dim(); ++i)
      require(std::isfinite(load_element(call.o.data(), static_cast<attune::Dtype>(call.desc.dtype), offset + i)),
              "an output is not finite");
  });
  call.lse.for_each([&](const auto&, int64_t offset) {
    require(!std::isnan(static_cast<const float*>(call.lse.data())[offset]), "an LSE is NaN");
  });
  require(call.o.padding_is_untouched() && call.lse.padding_is_untouched(), "padding of an output was written");
}

void fuzz_forward(FuzzedDataProvider& bytes) {
  const std::string kernel = consume_kernel(bytes);
  attune_context* context = context_for(kernel, 1);
  attune_forward_desc desc = consume_desc(bytes);
  const bool tame = !bytes.ConsumeBool();
  if (!tame) damage(bytes, desc);

  uint64_t workspace_bytes = 0;
  if (const attune_status status = attune_workspace_bytes(context, &desc, &workspace_bytes); status != ATTUNE_OK)
    return require_refusal(context, desc, status);
  if (desc.device_kind != ATTUNE_CPU || desc.struct_size != sizeof desc || !affordable(desc)) return;

  const NamedInReports named(desc);
  ForwardCall call(desc), again(desc);
  Numbers numbers(bytes.ConsumeIntegral<uint32_t>());
  call.fill_lengths(numbers);
  // Wild lengths are refused, unless they happen to fit.
  const bool wild_lengths = bytes.ConsumeIntegralInRange(0, 7) == 0;
  if (wild_lengths)
    for (auto* lengths : {&call.cu_seqlens_q, &call.cu_seqlens_k, &call.used_q, &call.used_k})
      for (int32_t& length : *lengths)
        if (bytes.ConsumeBool()) length = bytes.ConsumeIntegral<int32_t>();
  again.cu_seqlens_q = call.cu_seqlens_q;
  again.cu_seqlens_k = call.cu_seqlens_k;
  again.used_q = call.used_q;
  again.used_k = call.used_k;
  Numbers same_numbers = numbers;
  call.fill_values(numbers);
  again.fill_values(same_numbers);

  const attune_status status = call.run(context);
  if (status == ATTUNE_INVALID_ARGUMENT && (wild_lengths || !call.can_be_filled()))
    return require(call.outputs_untouched(), "a refused call wrote something");
  require(status == ATTUNE_OK, "attune_forward failed");
  require(again.run(context_for(kernel, 3)) == ATTUNE_OK, "attune_forward failed");
  require(call.o.copy() == again.o.copy() && call.lse.copy() == again.lse.copy(),
          "three threads gave other bits than one");
  if (tame) require_clean(call);
}

// Any bytes as a descriptor. The tensors are not there, so only an empty problem may go through.
void fuzz_raw(FuzzedDataProvider& bytes) {
  attune_context* context = context_for(consume_kernel(bytes), 1);
  attune_forward_desc desc{};
  const std::string raw = bytes.ConsumeBytesAsString(sizeof desc);
  std::memcpy(&desc, raw.data(), raw.size());
  if (desc.struct_size > sizeof desc || bytes.ConsumeBool()) desc.struct_size = sizeof desc;
  attune_forward_args args{};
  args.struct_size = sizeof args;
  const attune_status prepared = attune_prepare(context, &desc);
  const attune_status forwarded = attune_forward(context, &desc, &args, nullptr);
  require(prepared != ATTUNE_INTERNAL_ERROR && forwarded != ATTUNE_INTERNAL_ERROR, "bytes led to an internal error");
  if (prepared != ATTUNE_OK) require(forwarded == prepared, "attune_forward and attune_prepare disagree");

  char text[64];
  size_t length = 0;
  const auto capacity = bytes.ConsumeIntegralInRange<size_t>(0, sizeof text);
  if (attune_explain(context, &desc, text, capacity, &length) == ATTUNE_OK && capacity > 0)
    require(std::strlen(text) == std::min(length, capacity - 1), "attune_explain cut its text wrongly");
}

void fuzz_merge(FuzzedDataProvider& bytes) {
  attune_context* context = context_for("", bytes.ConsumeBool() ? 3 : 1);
  attune_merge_desc desc{};
  desc.struct_size = sizeof desc;
  desc.part_dtype = bytes.ConsumeIntegralInRange(0, 2);
  desc.dtype = bytes.ConsumeIntegralInRange(0, 2);
  desc.parts = bytes.ConsumeIntegralInRange<int64_t>(0, 6);
  desc.batch = bytes.ConsumeIntegralInRange<int64_t>(0, 3);
  desc.heads = bytes.ConsumeIntegralInRange<int64_t>(0, 4);
  desc.rows = consume_extent(bytes, 20);
  desc.dim = bytes.ConsumeIntegralInRange<int64_t>(0, 80);
  desc.part_o = consume_strides(bytes, desc.batch, desc.rows, desc.heads, desc.dim, false);
  desc.part_lse = consume_strides(bytes, desc.batch, desc.rows, desc.heads, 1, false);
  desc.o = consume_strides(bytes, desc.batch, desc.rows, desc.heads, desc.dim, true);
  desc.lse = consume_strides(bytes, desc.batch, desc.rows, desc.heads, 1, true);

  const auto tensor = [&desc](const attune_strides& s, int64_t dim, int64_t element_bytes) {
    return attune::test::TensorMemory({{{desc.batch, s.batch}, {desc.rows, s.row}, {desc.heads, s.head}, {1, 0}}}, dim,
                                      element_bytes);
  };
  const auto part_dtype = static_cast<attune::Dtype>(desc.part_dtype), dtype = static_cast<attune::Dtype>(desc.dtype);
  Numbers numbers(bytes.ConsumeIntegral<uint32_t>());
  std::vector<attune::test::TensorMemory> part_o, part_lse;
  std::vector<const void*> part_o_data;
  std::vector<const float*> part_lse_data;
  for (int64_t i = 0; i < desc.parts; ++i) {
    const auto& po = part_o.emplace_back(tensor(desc.part_o, desc.dim, bytes_of(part_dtype)));
    const auto& pl = part_lse.emplace_back(tensor(desc.part_lse, 1, 4));
    po.for_each([&](const auto&, int64_t offset) {
      for (int64_t c = 0; c < desc.dim; ++c) store_element(po.data(), part_dtype, offset + c, numbers.real());
    });
    pl.for_each([&](const auto&, int64_t offset) {
      static_cast<float*>(pl.data())[offset] = numbers.one_in(4) ? -INFINITY : 30 * numbers.real();
    });
    part_o_data.push_back(po.data());
    part_lse_data.push_back(static_cast<const float*>(pl.data()));
  }
  const auto o = tensor(desc.o, desc.dim, bytes_of(dtype)), lse = tensor(desc.lse, 1, 4);
  attune_merge_args args{};
  args.struct_size = sizeof args;
  args.part_o = part_o_data.data();
  args.part_lse = part_lse_data.data();
  args.o = o.data();
  args.lse = bytes.ConsumeBool() ? static_cast<float*>(lse.data()) : nullptr;
  const attune_status status = attune_merge(context, &desc, &args, nullptr);
  const bool legal = desc.parts >= 1 && desc.dim >= 1;
  require(status == (legal ? ATTUNE_OK : ATTUNE_INVALID_ARGUMENT), "attune_merge: wrong status");
  if (!legal) return require(o.all_untouched() && lse.all_untouched(), "a refused merge wrote something");
  o.for_each([&](const auto&, int64_t offset) {
    for (int64_t c = 0; c < desc.dim; ++c)
      require(std::isfinite(load_element(o.data(), dtype, offset + c)), "a merged output is not finite");
  });
  require(o.padding_is_untouched() && lse.padding_is_untouched(), "a merge wrote to padding");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider bytes(data, size);
  switch (bytes.ConsumeIntegralInRange(0, 7)) {
    case 0:
      fuzz_raw(bytes);
      break;
    case 1:
      fuzz_merge(bytes);
      break;
    default:
      fuzz_forward(bytes);
  }
  return 0;
}
