// The host's side of kernel "sm90/fwd_ranged": what it takes, and the launches of a call.
#include <array>
#include <cmath>
#include <numbers>

#include "core/error.hpp"
#include "gpu/kernel.hpp"
#include "gpu/tensor_map.hpp"
#include "kernels/attention/visibility.hpp"
#include "kernels/sm90/combine.cuh"
#include "kernels/sm90/fwd_ranged_cost.hpp"
#include "kernels/sm90/fwd_ranged_schedule.hpp"
#include "kernels/sm90/tile_list.cuh"

namespace attune::sm90::ranged {
namespace {

using device::divisor_of;
using device::sm90::ListedTile;
using device::sm90::ScoreTensor;
using device::sm90::SplitTile;
using device::sm90::TileCounts;
using device::sm90_fwd_ranged::Params;

constexpr int64_t most_head_dim = 512;

gpu::TensorMapSpec map_spec(const Problem& problem, std::array<int64_t, 5> dims, std::array<int64_t, 4> strides,
                            std::array<int64_t, 2> box) {
  gpu::TensorMapSpec spec;
  for (size_t i = 0; i < 5; ++i) spec.dims[i] = static_cast<uint64_t>(dims[i]);
  // The stride of a dimension of one element is not used, but must be one that the copy engine takes.
  for (size_t i = 0; i < 4; ++i) spec.stride_bytes[i] = dims[i + 1] > 1 ? static_cast<uint64_t>(strides[i]) * 2 : 16;
  spec.box = {device::panel_columns, static_cast<uint32_t>(box[0]), static_cast<uint32_t>(box[1]), 1, 1};
  spec.rank = 5;
  spec.dtype = problem.dtype;
  spec.swizzle = gpu::CU_TENSOR_MAP_SWIZZLE_128B;
  return spec;
}

struct Maps {
  gpu::TensorMapSpec q, k, v;
};

// Boxes are panels of 64 columns with the 128-byte swizzle: of the heads of a pack and positions, or of keys. Columns
// past the head dim are zeros.
Maps maps_of(const Problem& problem, int block_n) {
  const bool packed = problem.packed();
  const Pack pack = pack_of(problem);
  const int64_t batch = packed ? 1 : problem.batch, rows = packed ? problem.total_q : problem.seq_q;
  int64_t keys = packed ? problem.total_k : problem.seq_k;
  if (!has_lengths_on_device(problem)) keys = std::max(band_of(problem).keys, 1);
  const auto of_keys = [&](const attune_strides& strides, int64_t dim) {
    return map_spec(problem, {dim, keys, problem.heads_kv, batch, 1}, {strides.row, strides.head, strides.batch, 0},
                    {block_n, 1});
  };
  return {map_spec(problem, {problem.dim_qk, pack.heads(), rows, packs_of(problem), batch},
                   {problem.q.head, problem.q.row, problem.q.head * pack.heads(), problem.q.batch},
                   {pack.heads(), pack.positions_per_warpgroup()}),
          of_keys(problem.k, problem.dim_qk), of_keys(problem.v, problem.dim_v)};
}

std::string refusal_of_scores(const Problem& problem) {
  if (problem.softcap == 0) return {};
  if (!is_ordinary(problem.softcap)) return fmt::format("softcap {} is not 1e-20..1e20", problem.softcap);
  const float factor = std::abs(problem.scale / problem.softcap);
  if (factor != 0 && !is_ordinary(factor))
    return fmt::format("scale {} over softcap {} is not 1e-20..1e20", problem.scale, problem.softcap);
  return {};
}

std::string refusal_of_shape(const Problem& problem) {
  for (const auto& [name, dim] : {std::pair{"dim_qk", problem.dim_qk}, {"dim_v", problem.dim_v}})
    if (dim % 8 != 0 || dim > most_head_dim)
      return fmt::format("{} is {}, not a multiple of 8 up to {}", name, dim, most_head_dim);
  if (problem.empty() || problem.seq_k == 0 || (problem.packed() && problem.total_k == 0))
    return "the problem is empty";
  constexpr int64_t limit = int64_t{1} << 30;
  if (problem.seq_q > limit || problem.seq_k > limit || problem.seq_q * problem.heads_q > limit / problem.batch)
    return "there are more than 2^30 rows";
  for (const int64_t stride : {problem.o.row, problem.o.head, problem.o.batch})
    if (stride % 8 != 0) return fmt::format("a stride of o is {}, not a multiple of 8", stride);
  return {};
}

device::sm90::TileOrder order_of(const Problem& problem, const Schedule& schedule) {
  const int64_t rest = schedule.pairs % schedule.section;
  device::sm90::TileOrder order{};
  order.packs = divisor_of(static_cast<uint32_t>(packs_of(problem)));
  order.section_tiles = divisor_of(static_cast<uint32_t>(schedule.section * schedule.tiles_m));
  order.section = divisor_of(static_cast<uint32_t>(schedule.section));
  order.last_section = divisor_of(static_cast<uint32_t>(rest == 0 ? schedule.section : rest));
  order.whole_sections = static_cast<int32_t>(schedule.pairs / schedule.section);
  order.tiles_m = static_cast<int32_t>(schedule.tiles_m);
  order.tiles = static_cast<int32_t>(schedule.tiles_m * schedule.pairs);
  order.seq_q = static_cast<int32_t>(problem.seq_q);
  order.band = band_of(problem);
  return order;
}

// What the launches of a call leave for each other, in the workspace.
struct Workspace {
  int64_t tiles = 0;   // that sequences within the bounds can have, each counted once for all packs
  int64_t listed = 0;  // of these and their parts
  int64_t split_tiles = 0;
  int64_t parts = 0;  // of all packs
  uint64_t tiles_at = 0, split_tiles_at = 0, part_o_at = 0, part_lse_at = 0, bytes = 0;

  Workspace(const Problem& problem, const Config& config, const Schedule& schedule, int64_t wanted_tiles) {
    const int64_t positions = tile_positions(config, pack_of(problem)), packs = packs_of(problem);
    tiles = problem.packed() ? problem.total_q / positions + problem.batch
                             : problem.batch * device::ceil_div(problem.seq_q, positions);
    // A tile of n blocks has at most n / fair + 1 parts, and fair is at least all blocks over what is wanted.
    listed = tiles + (schedule.splits ? wanted_tiles / packs + 1 : 0);
    parts = schedule.splits ? listed * packs : 0;
    const auto place = [this](uint64_t size) {
      const uint64_t at = bytes;
      bytes += device::round_up<uint64_t>(size, 16);
      return at;
    };
    place(sizeof(TileCounts));
    tiles_at = place(static_cast<uint64_t>(listed) * sizeof(ListedTile));
    split_tiles = schedule.splits ? tiles : 0;
    split_tiles_at = place(static_cast<uint64_t>(split_tiles) * sizeof(SplitTile));
    const auto rows = static_cast<uint64_t>(parts * rows_per_warpgroup);
    part_o_at = place(rows * static_cast<uint64_t>(problem.dim_v) * sizeof(float));
    part_lse_at = place(rows * sizeof(float));
  }

  template <typename T>
  static T* at(const Operands& operands, uint64_t offset) {
    return reinterpret_cast<T*>(static_cast<std::byte*>(operands.workspace) + offset);
  }
};

ScoreTensor score_tensor(const attune_score_strides& strides, const void* data, int64_t element_bytes) {
  const auto is_even = [](int64_t stride) { return stride % 2 == 0; };
  return {data,
          strides.batch,
          strides.head,
          strides.query,
          strides.key,
          strides.key == 1 && is_even(strides.batch) && is_even(strides.head) && is_even(strides.query) &&
              reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(2 * element_bytes) == 0};
}

// The map of the tensor that has a term for every score. A dimension that is broadcast has one element: a stride of 0
// is none that the copy engine is known to take.
gpu::TensorMapSpec terms_map(const Problem& problem, int block_n) {
  const TermTile tile = tile_of(problem);
  const device::sm90::TermLayout layout{tile, block_n};
  const attune_score_strides& strides = tile_strides(problem);
  const auto extent = [](int64_t stride, int64_t count) { return static_cast<uint64_t>(stride == 0 ? 1 : count); };
  gpu::TensorMapSpec spec;
  spec.dims = {static_cast<uint64_t>(problem.seq_k), static_cast<uint64_t>(problem.seq_q),
               extent(strides.head, problem.heads_q), extent(strides.batch, problem.batch), 1};
  const int64_t steps[] = {strides.query, strides.head, strides.batch};
  for (size_t i = 0; i < 4; ++i)
    spec.stride_bytes[i] =
        i < 3 && spec.dims[i + 1] > 1 ? static_cast<uint64_t>(steps[i]) * static_cast<uint64_t>(tile) : 16;
  spec.box = {static_cast<uint32_t>(layout.panel_columns()), rows_per_warpgroup, 1, 1, 1};
  spec.rank = 5;
  spec.element_bytes = static_cast<uint32_t>(layout.element_bytes());
  spec.swizzle = layout.span_bytes() == 128  ? gpu::CU_TENSOR_MAP_SWIZZLE_128B
                 : layout.span_bytes() == 64 ? gpu::CU_TENSOR_MAP_SWIZZLE_64B
                                             : gpu::CU_TENSOR_MAP_SWIZZLE_32B;
  return spec;
}

gpu::Step list_step(const Problem& problem, const Config& config, const Workspace& workspace, int64_t wanted_tiles) {
  using device::sm90_tile_list::Params;
  constexpr device::sm90_tile_list::Config list_config{};
  using Storage = device::sm90_tile_list::SharedStorage<device::sm90_tile_list::Variant{}, list_config>;
  jit::DeviceUnit unit;
  unit.name = "sm90/tile_list";
  unit.file = "kernels/sm90/tile_list.cuh";
  unit.scope = "attune::device::sm90_tile_list";
  unit.config = jit::Initializer().add("warps", list_config.warps).text();
  unit.threads = list_config.warps * 32;
  unit.smem_bytes = sizeof(Storage);
  unit.layout = {ATTUNE_SIZE_FACT(Params), ATTUNE_OFFSET_FACT(Params, visibility), ATTUNE_OFFSET_FACT(Params, counts)};

  Params params{};
  params.lengths.seq_q = problem.seq_q;
  params.lengths.seq_k = problem.seq_k;
  params.lengths.total_q = problem.total_q;
  params.lengths.total_k = problem.total_k;
  params.visibility = visibility_of(problem);
  params.batch = static_cast<int32_t>(problem.batch);
  params.packs = static_cast<int32_t>(packs_of(problem));
  params.tile_positions = tile_positions(config, pack_of(problem));
  params.block_n = config.block_n;
  params.wanted_tiles = static_cast<int32_t>(wanted_tiles);
  params.most_tiles = static_cast<int32_t>(workspace.listed);
  params.most_split_tiles = static_cast<int32_t>(workspace.split_tiles);
  params.most_parts = static_cast<int32_t>(workspace.parts / packs_of(problem));
  params.least_blocks = static_cast<int32_t>(device::ceil_div<int64_t>(least_part_keys, config.block_n));
  while ((problem.seq_k / config.block_n >> params.cost_shift) >= device::sm90_tile_list::bins) ++params.cost_shift;
  params.has_terms = problem.has(ATTUNE_BIAS) || (problem.has(ATTUNE_MASK) && !masks_keys_alone(problem));
  const auto fill = [problem, workspace](Params& out, const Operands& operands, const gpu::Driver&) {
    if (masks_keys_alone(problem)) out.key_mask = score_tensor(problem.mask, operands.in(Operand::mask), 1);
    const auto lengths = [&](attune_features feature, Operand operand) {
      return problem.has(feature) ? operands.in<int32_t>(operand) : nullptr;
    };
    out.lengths.cu_seqlens_q = lengths(ATTUNE_PACKED, Operand::cu_seqlens_q);
    out.lengths.cu_seqlens_k = lengths(ATTUNE_PACKED, Operand::cu_seqlens_k);
    out.lengths.used_q = lengths(ATTUNE_USED_Q, Operand::used_q);
    out.lengths.used_k = lengths(ATTUNE_USED_K, Operand::used_k);
    out.counts = Workspace::at<TileCounts>(operands, 0);
    out.tiles = Workspace::at<ListedTile>(operands, workspace.tiles_at);
    out.split_tiles = Workspace::at<SplitTile>(operands, workspace.split_tiles_at);
  };
  return gpu::make_step(unit, {1, 1, 1}, params, fill);
}

// Near zero tanh(x) is x times a polynomial of x^2, to 6e-7 of itself for |x| <= 1/2, fitted by Remez' algorithm. The
// powers of the factor are in its coefficients. Where they would leave float32, the exact form serves.
device::sm90::Softcap softcap_of(float factor) {
  constexpr double near[] = {0.999999456, -0.33326318, 0.131902967, -0.0444022262}, limit = 0.5;
  device::sm90::Softcap softcap{};
  softcap.factor = factor;
  softcap.near_limit = -1;
  const double size = std::abs(static_cast<double>(factor));
  if (size < 1e-4 || size > 1e4) return softcap;
  softcap.near_limit = static_cast<float>(limit / size);
  for (int i = 0; i < 4; ++i) softcap.near[i] = static_cast<float>(near[i] * std::pow(factor, 2 * i + 1));
  return softcap;
}

device::sm90::Call call_of(const Problem& problem) {
  device::sm90::Call call{};
  call.o_batch_stride = problem.packed() ? 0 : problem.o.batch;
  call.o_row_stride = problem.o.row;
  call.o_head_stride = problem.o.head;
  call.lse_batch_stride = problem.packed() ? 0 : problem.lse.batch;
  call.lse_row_stride = problem.lse.row;
  call.lse_head_stride = problem.lse.head;
  call.dim_v = static_cast<int32_t>(problem.dim_v);
  call.pack = pack_of(problem);
  const bool capped = problem.softcap != 0;
  const Scores scores = scores_of(problem);
  const bool logits = scores == Scores::general || scores == Scores::staged;
  const double unit = logits ? 1 : capped ? problem.softcap : problem.scale;
  call.scale_log2 = static_cast<float>(unit * std::numbers::log2e);
  if (capped) call.softcap = softcap_of(problem.scale / problem.softcap);
  call.scale = problem.scale;
  call.cap = problem.softcap;
  call.bias_is_float = problem.bias_dtype == Dtype::f32;
  const auto is_vector = [](bool has, const attune_score_strides& strides) { return has && strides.query == 0; };
  call.has_key_terms =
      is_vector(problem.has(ATTUNE_BIAS), problem.bias) || is_vector(problem.has(ATTUNE_MASK), problem.mask);
  return call;
}

// The outputs of a call, and where its parts lie.
void set_results(device::sm90::Call& call, const Problem& problem, const Workspace& workspace,
                 const Operands& operands) {
  call.o = operands.out(Operand::o);
  call.lse = problem.has(ATTUNE_LSE) ? operands.out<float>(Operand::lse) : nullptr;
  call.sink = problem.has(ATTUNE_SINK) ? operands.in<float>(Operand::sink) : nullptr;
  call.part_o = Workspace::at<float>(operands, workspace.part_o_at);
  call.part_lse = Workspace::at<float>(operands, workspace.part_lse_at);
}

gpu::Step combine_step(const Problem& problem, const Config& config, const Workspace& workspace) {
  using device::sm90_combine::Params;
  // With many parts a row, as where one sequence decodes, warps share it; with few, each warp has a row of its own.
  const bool many_parts = workspace.parts >= 8 * workspace.tiles * packs_of(problem);
  const device::sm90_combine::Config combine_config{.rows = many_parts ? 1 : 4, .warps_per_row = many_parts ? 8 : 1};
  const int warps = combine_config.rows * combine_config.warps_per_row;
  jit::DeviceUnit unit;
  unit.name = "sm90/combine";
  unit.file = "kernels/sm90/combine.cuh";
  unit.scope = "attune::device::sm90_combine";
  unit.variant = jit::Initializer().add("dtype", static_cast<device::Dtype>(problem.dtype)).text();
  unit.config =
      jit::Initializer().add("rows", combine_config.rows).add("warps_per_row", combine_config.warps_per_row).text();
  unit.threads = static_cast<uint32_t>(warps * 32);
  unit.smem_bytes = static_cast<uint32_t>(warps * device::sm90_combine::most_columns * sizeof(float));
  unit.layout = {ATTUNE_SIZE_FACT(Params), ATTUNE_OFFSET_FACT(Params, call.softcap), ATTUNE_OFFSET_FACT(Params, packs)};

  Params params{};
  params.call = call_of(problem);
  params.packs = divisor_of(static_cast<uint32_t>(packs_of(problem)));
  params.rows_per_tile =
      static_cast<int32_t>(std::min<int64_t>(tile_rows(config), problem.seq_q << pack_of(problem).log2));
  const auto fill = [problem, workspace](Params& out, const Operands& operands, const gpu::Driver&) {
    set_results(out.call, problem, workspace, operands);
    out.counts = Workspace::at<TileCounts>(operands, 0);
    out.tiles = Workspace::at<SplitTile>(operands, workspace.split_tiles_at);
  };
  const int64_t rows = workspace.tiles * packs_of(problem) * params.rows_per_tile;
  constexpr int64_t most_ctas = 4096;
  const auto ctas = std::clamp<int64_t>(device::ceil_div<int64_t>(rows, combine_config.rows), 1, most_ctas);
  gpu::Step step = gpu::make_step(unit, {static_cast<uint32_t>(ctas), 1, 1}, params, fill);
  step.programmatic = true;
  return step;
}

class ForwardRanged final : public gpu::GpuKernel {
 public:
  std::string_view name() const override { return "sm90/fwd_ranged"; }
  int64_t pointer_alignment(const Problem&) const override { return gpu::tensor_map_alignment; }

  std::string refusal_on(const Problem& problem, const gpu::DeviceProperties& device) const override {
    if (device.capability() != 90) return fmt::format("{} is not sm_90", device.arch());
    if (problem.dtype == Dtype::f32) return "dtype f32 is not f16 or bf16";
    constexpr attune_features taken = ATTUNE_SCALE | ATTUNE_LSE | ATTUNE_WINDOW | ATTUNE_SOFTCAP | ATTUNE_SINK |
                                      ATTUNE_BIAS | ATTUNE_MASK | ATTUNE_PACKED | ATTUNE_USED_Q | ATTUNE_USED_K |
                                      ATTUNE_OVERLAP | ATTUNE_KV_READY;
    if ((problem.features & ~taken) != 0) return "a feature is asked for that it does not have";
    if (std::string why = refusal_of_shape(problem); !why.empty()) return why;
    if (std::string why = refusal_of_scores(problem); !why.empty()) return why;
    const Maps maps = maps_of(problem, 64);
    for (const auto& [which, spec] : {std::pair{"q", maps.q}, {"k", maps.k}, {"v", maps.v}})
      if (const std::string why = gpu::tensor_map_refusal(spec); !why.empty()) return fmt::format("{}: {}", which, why);
    return {};
  }

  std::vector<Configuration> configurations_on(const Problem& problem,
                                               const gpu::DeviceProperties& device) const override {
    std::vector<Configuration> list;
    for (const Choice& choice : best_first(problem, device))
      list.push_back({jit::text_of(choice.config), predicted_seconds(problem, choice)});
    return list;
  }

  gpu::Choice choice_on(const Problem& problem, const gpu::DeviceProperties& device) const override {
    const Choice best = best_first(problem, device).at(0);
    return {predicted_seconds(problem, best),
            [problem, device, best] { return recipe(problem, best.config, best.schedule, device); }};
  }

  gpu::Recipe recipe(const Problem& problem, const gpu::DeviceProperties& device,
                     std::string_view text) const override {
    for (const Choice& choice : best_first(problem, device))
      if (jit::text_of(choice.config) == text) return recipe(problem, choice.config, choice.schedule, device);
    fail(ATTUNE_INVALID_ARGUMENT, "sm90/fwd_ranged has no configuration '{}' for {}", text, to_string(problem));
  }

 private:
  static double predicted_seconds(const Problem& problem, const Choice& choice) {
    const double margin = is_dense(problem) ? dense_margin : 1;
    return (launch_us + choice.schedule.makespan_us) * margin * 1e-6;
  }

  static gpu::Recipe recipe(const Problem& problem, const Config& config, const Schedule& schedule,
                            const gpu::DeviceProperties& device) {
    const int64_t wanted_tiles = schedule.splits ? parts_per_sm * device.sm_count : 0;
    const Workspace workspace(problem, config, schedule, wanted_tiles);
    gpu::Recipe recipe;
    if (schedule.listed) {
      recipe.workspace_bytes = workspace.bytes;
      recipe.steps.push_back(list_step(problem, config, workspace, wanted_tiles));
    }
    recipe.steps.push_back(attention_step(problem, config, schedule, workspace));
    if (schedule.splits) recipe.steps.push_back(combine_step(problem, config, workspace));
    return recipe;
  }

  static gpu::Step attention_step(const Problem& problem, const Config& config, const Schedule& schedule,
                                  const Workspace& workspace) {
    const Variant variant = variant_of(problem, schedule.listed);
    jit::DeviceUnit unit;
    unit.name = "sm90/fwd_ranged";
    unit.file = "kernels/sm90/fwd_ranged.cuh";
    unit.scope = "attune::device::sm90_fwd_ranged";
    unit.variant = jit::text_of(variant);
    unit.config = jit::text_of(config);
    unit.threads = static_cast<uint32_t>(threads(config));
    unit.min_blocks_per_sm = static_cast<uint32_t>(config.ctas_per_sm);
    unit.role_registers = static_cast<uint32_t>(role_registers(config));
    unit.smem_bytes = static_cast<uint32_t>(shared_bytes(variant, config));
    unit.layout = {ATTUNE_SIZE_FACT(Params),
                   ATTUNE_OFFSET_FACT(Params, call.o),
                   ATTUNE_OFFSET_FACT(Params, call.softcap),
                   ATTUNE_OFFSET_FACT(Params, plan.order.band),
                   ATTUNE_OFFSET_FACT(Params, plan.list),
                   ATTUNE_OFFSET_FACT(Params, plan.packs_per_head_kv)};
    unit.layout.push_back({"sizeof(SharedStorage<variant, config>)", unit.smem_bytes});

    Params params{};
    params.call = call_of(problem);
    params.plan.packs_per_head_kv = divisor_of(static_cast<uint32_t>(packs_of(problem) / problem.heads_kv));
    if (schedule.listed) {
      params.plan.list.packs = divisor_of(static_cast<uint32_t>(packs_of(problem)));
    } else {
      params.plan.order = order_of(problem, schedule);
    }
    const Maps maps = maps_of(problem, config.block_n);
    const bool has_tile = variant.tile != TermTile::none;
    const gpu::TensorMapSpec terms = has_tile ? terms_map(problem, config.block_n) : gpu::TensorMapSpec{};
    const auto fill = [problem, maps, workspace, has_tile, terms](Params& out, const Operands& operands,
                                                                  const gpu::Driver& driver) {
      out.call.q = tensor_map(driver, maps.q, operands.in(Operand::q));
      out.call.k = tensor_map(driver, maps.k, operands.in(Operand::k));
      out.call.v = tensor_map(driver, maps.v, operands.in(Operand::v));
      set_results(out.call, problem, workspace, operands);
      if (problem.has(ATTUNE_BIAS))
        out.call.bias = score_tensor(problem.bias, operands.in(Operand::bias), bytes_of(problem.bias_dtype));
      if (problem.has(ATTUNE_MASK)) out.call.mask = score_tensor(problem.mask, operands.in(Operand::mask), 1);
      if (has_tile) {
        const void* data = operands.in(tile_of(problem) == TermTile::mask ? Operand::mask : Operand::bias);
        out.call.terms_by_engine = reinterpret_cast<uintptr_t>(data) % gpu::tensor_map_alignment == 0;
        if (out.call.terms_by_engine) out.call.terms = tensor_map(driver, terms, data);
      }
      out.plan.list.counts = Workspace::at<const TileCounts>(operands, 0);
      out.plan.list.tiles = Workspace::at<const ListedTile>(operands, workspace.tiles_at);
    };
    gpu::Step step = gpu::make_step(unit, {static_cast<uint32_t>(schedule.grid), 1, 1}, params, fill);
    step.programmatic = schedule.listed;
    return step;
  }
};
const Registration<ForwardRanged> registration;

}  // namespace
}  // namespace attune::sm90::ranged
