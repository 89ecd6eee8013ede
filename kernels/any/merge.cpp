// The host's side of kernel "any/merge".
#include "kernels/any/merge.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "gpu/launch.hpp"
#include "kernels/any/call.hpp"
#include "kernels/any/merge.cuh"

namespace attune::any {
namespace {

using device::any_merge::Config;
using device::any_merge::Params;

static_assert(device::any_merge::max_parts == ATTUNE_MERGE_MAX_PARTS);

device::any_merge::Strides strides_of(const attune_strides& s) { return {s.batch, s.row, s.head}; }

}  // namespace

jit::DeviceUnit merge_unit() {
  jit::DeviceUnit unit;
  unit.name = "any/merge";
  unit.file = "kernels/any/merge.cuh";
  unit.scope = "attune::device::any_merge";
  unit.config = jit::Initializer().add("warps", Config{}.warps).text();
  unit.layout = {ATTUNE_SIZE_FACT(Params), ATTUNE_OFFSET_FACT(Params, lse_strides), ATTUNE_OFFSET_FACT(Params, dtype)};
  unit.params_bytes = sizeof(Params);
  unit.threads = Config{}.warps * 32;
  unit.smem_bytes = sizeof(device::any_merge::SharedStorage);
  return unit;
}

Params merge_params(const attune_merge_desc& desc, const attune_merge_args& args) {
  Params params{};
  std::copy_n(args.part_o, desc.parts, params.part_o);
  std::copy_n(args.part_lse, desc.parts, params.part_lse);
  params.o = args.o;
  params.lse = args.lse;
  params.part_o_strides = strides_of(desc.part_o);
  params.part_lse_strides = strides_of(desc.part_lse);
  params.o_strides = strides_of(desc.o);
  params.lse_strides = strides_of(desc.lse);
  params.batch = desc.batch;
  params.heads = desc.heads;
  params.rows = desc.rows;
  params.parts = static_cast<int32_t>(desc.parts);
  params.dim = static_cast<int32_t>(desc.dim);
  params.part_dtype = static_cast<device::Dtype>(desc.part_dtype);
  params.dtype = static_cast<device::Dtype>(desc.dtype);
  return params;
}

Merger::Merger(gpu::Runtime& runtime)
    : runtime_(runtime), unit_(merge_unit()), loaded_(static_cast<size_t>(runtime.device_count())) {}

void Merger::prepare(int device_index) {
  runtime_.device(device_index);
  if (loaded_[device_index] == nullptr) loaded_[device_index] = &runtime_.load(unit_, device_index);
}

void Merger::run(const attune_merge_desc& desc, const attune_merge_args& args, void* stream) {
  gpu::Device& device = runtime_.device(desc.device_index);
  if (loaded_[desc.device_index] == nullptr) {
    if (runtime_.is_capturing(desc.device_index, stream))
      fail(ATTUNE_NOT_PREPARED,
           "attune_merge inside a graph capture: call it, or attune_prepare, once before on this device");
    prepare(desc.device_index);
  }
  const int64_t rows = desc.batch * desc.heads * desc.rows;
  if (rows == 0) return;

  Params params = merge_params(desc, args);
  const gpu::CurrentContext current(device.driver(), device.context());
  const gpu::Launch launch(loaded_[desc.device_index].load()->function,
                           grid_for((rows + Config{}.warps - 1) / Config{}.warps), unit_, false);
  launch(device.driver(), &params, static_cast<gpu::CUstream>(stream));
}

}  // namespace attune::any
