// The ceilings of a GPU.
#include <climits>
#include <cstring>

#include "core/error.hpp"
#include "gpu/launch.hpp"
#include "jit/embedded.hpp"
#include "jit/nvrtc.hpp"
#include "jit/source.hpp"
#include "lab/measure/ceiling_of.hpp"
#include "lab/measure/ceilings.hpp"
#include "lab/measure/graph_contender.hpp"
#include "lab/measure/probes/empty.cuh"
#include "lab/measure/probes/exp2.cuh"
#include "lab/measure/probes/matmul.cuh"
#include "lab/measure/probes/read.cuh"
#include "lab/stats/random.hpp"

namespace attune::jit {
extern const EmbeddedFile probe_files[];  // lab/CMakeLists.txt
}

namespace attune::lab {
namespace {

using namespace device;

constexpr double hopper_tensor_flops = 4096;  // dense, 16 bit, per SM and clock
constexpr int matmul_rounds = 1000, exp2_rounds = 512;
constexpr size_t largest_read_bytes = size_t{1} << 30;
constexpr int l2_passes = 32;

template <typename Params>
jit::DeviceUnit probe_unit(const std::string& name, uint32_t threads, uint32_t smem_bytes = 0) {
  jit::DeviceUnit unit;
  unit.name = "probe/" + name;
  unit.file = "lab/measure/probes/" + name + ".cuh";
  unit.scope = "attune::device::probe_" + name;
  unit.layout = {ATTUNE_SIZE_FACT(Params)};
  unit.params_bytes = sizeof(Params);
  unit.threads = threads;
  unit.smem_bytes = smem_bytes;
  return unit;
}

jit::DeviceUnit matmul_unit() {
  return probe_unit<probe_matmul::Params>("matmul", probe_matmul::warpgroups * 128, probe_matmul::shared_bytes);
}
jit::DeviceUnit read_unit() { return probe_unit<probe_read::Params>("read", probe_read::threads); }
jit::DeviceUnit exp2_unit() { return probe_unit<probe_exp2::Params>("exp2", probe_exp2::threads); }
jit::DeviceUnit empty_unit() { return probe_unit<probe_empty::Params>("empty", 32); }

// Memory of the GPU with random contents.
class RandomMemory {
 public:
  RandomMemory(Gpu& gpu, size_t bytes, uint64_t seed) : gpu_(gpu), memory_(gpu.allocate(bytes)) {
    constexpr size_t block = size_t{16} << 20;
    std::vector<uint64_t> values(std::min(bytes, block) / 8 + 1);
    stats::Random random(seed);
    for (uint64_t& value : values) value = random.bits();
    const auto all = std::as_bytes(std::span(values));
    for (size_t at = 0; at < bytes; at += block) gpu_.upload(memory_ + at, all.first(std::min(block, bytes - at)));
  }
  RandomMemory(const RandomMemory&) = delete;
  RandomMemory& operator=(const RandomMemory&) = delete;
  ~RandomMemory() { gpu_.release(memory_); }
  DevicePointer address() const { return memory_; }

 private:
  Gpu& gpu_;
  DevicePointer memory_;
};

// A probe compiled and loaded, with its memory and the one struct of parameters that all its launches get.
class ProbeGraph final : public GraphSource {
 public:
  using Fill = std::function<std::vector<std::byte>(DevicePointer memory)>;

  ProbeGraph(CudaGpu& gpu, jit::DeviceUnit unit, uint32_t blocks, size_t bytes, Fill params)
      : gpu_(gpu), unit_(std::move(unit)), blocks_(blocks), bytes_(bytes), fill_(std::move(params)) {
    const gpu::Driver& driver = gpu_.driver();
    const jit::Compiled compiled = compile_probe(unit_, gpu_.properties().arch());
    driver.check(driver.cuModuleLoadData(&module_, compiled.cubin.data()), unit_.name.c_str());
    driver.check(driver.cuModuleGetFunction(&function_, module_, jit::entry_name), unit_.name.c_str());
    if (unit_.smem_bytes > 0)
      driver.check(driver.cuFuncSetAttribute(function_, gpu::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                             static_cast<int>(unit_.smem_bytes)),
                   unit_.name.c_str());
  }
  ProbeGraph(const ProbeGraph&) = delete;
  ProbeGraph& operator=(const ProbeGraph&) = delete;
  ~ProbeGraph() override {
    memory_.reset();
    gpu_.driver().cuModuleUnload(module_);
  }

  std::string_view name() const override { return unit_.name; }
  Facts facts() const override { return {{"blocks", std::to_string(blocks_)}}; }

  void make(uint64_t seed) override {
    memory_.reset();
    memory_ = std::make_unique<RandomMemory>(gpu_, bytes_, seed);
    params_ = fill_(memory_->address());
  }

  RecordedGraph record(int calls) override {
    const gpu::Launch launch(function_, {blocks_, 1, 1}, unit_, false);
    return gpu_.record(GraphEdges::full, [&](StreamHandle stream) {
      for (int i = 0; i < calls; ++i) launch(gpu_.driver(), params_.data(), static_cast<gpu::CUstream>(stream));
    });
  }
  void release(const RecordedGraph& graph) override { gpu_.release_graph(graph.handle); }

 private:
  CudaGpu& gpu_;
  jit::DeviceUnit unit_;
  uint32_t blocks_;
  size_t bytes_;
  Fill fill_;
  gpu::CUmodule module_ = nullptr;
  gpu::CUfunction function_ = nullptr;
  std::unique_ptr<RandomMemory> memory_;
  std::vector<std::byte> params_;
};

template <typename Params>
std::vector<std::byte> bytes_of_params(const Params& params) {
  std::vector<std::byte> bytes(sizeof params);
  std::memcpy(bytes.data(), &params, sizeof params);
  return bytes;
}

uint32_t sm_count(const CudaGpu& gpu) { return static_cast<uint32_t>(gpu.properties().sm_count); }

std::unique_ptr<Contender> matmul_probe(CudaGpu& gpu) {
  const size_t bytes = size_t{sm_count(gpu)} * probe_matmul::warpgroups * 128 * sizeof(float);
  return graph_contender(std::make_unique<ProbeGraph>(gpu, matmul_unit(), sm_count(gpu), bytes,
                                                      [](DevicePointer memory) {
                                                        return bytes_of_params(probe_matmul::Params{
                                                            std::bit_cast<float*>(memory), matmul_rounds, 1});
                                                      }),
                         gpu);
}

struct ReadProbe {
  std::unique_ptr<Contender> contender;
  double bytes = 0;  // of a call
};

ReadProbe read_probe(CudaGpu& gpu, size_t wanted_bytes, int passes) {
  const uint32_t blocks = probe_read::blocks_per_sm * sm_count(gpu);
  const int64_t step = int64_t{blocks} * probe_read::threads * probe_read::loads_in_flight;
  const int64_t steps = std::max<int64_t>(1, static_cast<int64_t>(wanted_bytes) / (16 * step));
  const auto bytes = static_cast<size_t>(steps * step * 16);
  const auto fill = [=](DevicePointer memory) {
    return bytes_of_params(probe_read::Params{std::bit_cast<const uint32_t*>(memory), std::bit_cast<uint32_t*>(memory),
                                              steps * step, passes});
  };
  return {graph_contender(std::make_unique<ProbeGraph>(gpu, read_unit(), blocks, bytes, fill), gpu),
          static_cast<double>(bytes) * passes};
}

// One probe that cannot be compiled or fails leaves the others.
template <typename Measure>
Ceiling or_absent(const CeilingName& name, Measure&& measure) {
  try {
    return measure();
  } catch (const Error& error) {
    return absent(name, error.what());
  }
}

Ceiling read_ceiling(CudaGpu& gpu, const CeilingName& name, size_t bytes, int passes) {
  return or_absent(name, [&] {
    ReadProbe probe = read_probe(gpu, bytes, passes);
    return ceiling_of(name, std::move(probe.contender), [&](double seconds) { return probe.bytes / seconds / 1e9; });
  });
}

Ceiling exp2_ceiling(CudaGpu& gpu) {
  const CeilingName name{"exp2", "ex2.approx.ftz, results per clock and SM", "per clock and SM"};
  return or_absent(name, [&] {
    const uint32_t blocks = probe_exp2::blocks_per_sm * sm_count(gpu);
    const double results = double{probe_exp2::chains} * exp2_rounds * probe_exp2::threads * probe_exp2::blocks_per_sm;
    const auto fill = [](DevicePointer memory) {
      return bytes_of_params(probe_exp2::Params{std::bit_cast<float*>(memory), exp2_rounds, 0.25f});
    };
    auto probe = std::make_unique<ProbeGraph>(gpu, exp2_unit(), blocks, sizeof(float), fill);
    Ceiling ceiling =
        ceiling_of(name, graph_contender(std::move(probe), gpu), [&](double seconds) { return results / seconds; });
    if (ceiling.clock_hz <= 0) return absent(name, "the clock is not known");
    for (double* figure : {&ceiling.value, &ceiling.lower, &ceiling.upper}) *figure /= ceiling.clock_hz;
    return ceiling;
  });
}

Ceiling launch_ceiling(CudaGpu& gpu) {
  const CeilingName name{"launch", "an empty kernel in a linear graph of 50", "us"};
  return or_absent(name, [&] {
    const auto fill = [](DevicePointer) { return bytes_of_params(probe_empty::Params{0}); };
    auto probe = std::make_unique<ProbeGraph>(gpu, empty_unit(), sm_count(gpu), 16, fill);
    return ceiling_of(name, graph_contender(std::move(probe), gpu), [](double seconds) { return seconds * 1e6; });
  });
}

}  // namespace

std::vector<jit::DeviceUnit> probe_units() { return {matmul_unit(), read_unit(), exp2_unit(), empty_unit()}; }

jit::Compiled compile_probe(const jit::DeviceUnit& unit, const std::string& arch) {
  for (const jit::EmbeddedFile* file = jit::probe_files; file->path != nullptr; ++file) {
    if (unit.file != file->path) continue;
    std::vector<jit::SourceFile> headers = jit::Sources::from_environment().closure(file->text);
    headers.push_back({file->path, file->text});
    const int newest_major = gpu::find_driver() == nullptr ? INT_MAX : gpu::driver().major();
    return jit::find_nvrtc(newest_major).compile(source_of(unit), headers, arch);
  }
  fail(ATTUNE_INTERNAL_ERROR, "there is no probe {}", unit.file);
}

Ceiling gpu_matmul_ceiling(CudaGpu& gpu) {
  const CeilingName name{"matmul", "wgmma m64n256k16 from shared memory, bf16, random numbers", "TFLOP/s"};
  if (gpu.properties().major != 9) return absent(name, "the probe is for Hopper's tensor cores");
  return or_absent(name, [&] {
    const double flops = probe_matmul::flops_per_round * matmul_rounds * sm_count(gpu);
    Ceiling ceiling = ceiling_of(name, matmul_probe(gpu), [&](double seconds) { return flops / seconds / 1e12; });
    if (ceiling.clock_hz > 0)
      ceiling.share = ceiling.value * 1e12 / (ceiling.clock_hz * sm_count(gpu) * hopper_tensor_flops);
    return ceiling;
  });
}

std::vector<Ceiling> gpu_ceilings(CudaGpu& gpu, const CeilingProgress& say) {
  std::vector<Ceiling> ceilings;
  say("matmul");
  ceilings.push_back(gpu_matmul_ceiling(gpu));
  say("read");
  ceilings.push_back(read_ceiling(gpu, {"read", "memory, loads of 16 bytes", "GB/s"},
                                  std::max(largest_read_bytes, 8 * gpu.l2_bytes()), 1));
  say("read_l2");
  ceilings.push_back(read_ceiling(gpu, {"read_l2", "L2, loads of 16 bytes", "GB/s"}, gpu.l2_bytes() / 3, l2_passes));
  say("exp2");
  ceilings.push_back(exp2_ceiling(gpu));
  say("launch");
  ceilings.push_back(launch_ceiling(gpu));
  return ceilings;
}

NoiseFloor gpu_noise_floor(CudaGpu& gpu) {
  const auto contender = [&] {
    return gpu.properties().major == 9 ? matmul_probe(gpu) : read_probe(gpu, largest_read_bytes / 4, 1).contender;
  };
  return noise_floor_of("steady", contender);
}

}  // namespace attune::lab
