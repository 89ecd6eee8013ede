#include "tests/ptx/harness.hpp"

#include <unistd.h>

#include <climits>
#include <csignal>
#include <cstring>
#include <map>
#include <memory>

#include "gpu/device.hpp"
#include "gpu/launch.hpp"
#include "jit/nvrtc.hpp"
#include "tests/support/gpu.hpp"

namespace attune::ptx {
namespace {

constexpr unsigned seconds_until_hung = 20;

std::string text_of(const jit::DeviceUnit& unit, Waits waits) {
  const char* bound = "#define ATTUNE_BOUNDED_WAITS\n#define ATTUNE_BOUNDED_WAIT_CYCLES 200'000'000ll\n";
  return (waits == Waits::bounded ? bound : "") + jit::source_of(unit);
}

// The test kernel and what it includes.
std::vector<jit::SourceFile> headers_of(const jit::DeviceUnit& unit) {
  for (const jit::SourceFile* file = test_sources; !file->path.empty(); ++file) {
    if (file->path != unit.file) continue;
    std::vector<jit::SourceFile> headers = jit::Sources::from_environment().closure(file->text);
    headers.push_back(*file);
    return headers;
  }
  fail(ATTUNE_COMPILE_ERROR, "there is no test kernel {}", unit.file);
}

// The GPU of these tests. Lives as long as the process: at its end the driver may be gone before us.
struct Card {
  gpu::Device device{gpu::driver(), 0};
  gpu::CUstream stream = nullptr;
  std::map<std::string, gpu::CUfunction> functions;
  std::string last_launch;

  static Card& get() {
    static Card* const card = new Card;
    return *card;
  }

  Card() {
    make_current();
    gpu::driver().check(gpu::driver().cuStreamCreate(&stream, gpu::CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  }

  void make_current() { gpu::driver().check(gpu::driver().cuCtxSetCurrent(device.context()), "cuCtxSetCurrent"); }

  gpu::CUfunction load(const jit::DeviceUnit& unit, Waits waits) {
    gpu::CUfunction& function = functions[text_of(unit, waits)];
    if (function != nullptr) return function;
    const gpu::Driver& driver = gpu::driver();
    gpu::CUmodule module = nullptr;
    driver.check(driver.cuModuleLoadData(&module, compiled(unit, waits).cubin.data()), "cuModuleLoadData");
    driver.check(driver.cuModuleGetFunction(&function, module, jit::entry_name), "cuModuleGetFunction");
    if (unit.smem_bytes > 0)
      driver.check(driver.cuFuncSetAttribute(function, gpu::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                             static_cast<int>(unit.smem_bytes)),
                   "cuFuncSetAttribute");
    return function;
  }
};

char hung_message[512];

void close_hung_program(int) {
  if (write(STDERR_FILENO, hung_message, std::strlen(hung_message)) < 0) _exit(2);
  _exit(1);
}

}  // namespace

const jit::Compiled& compiled(const jit::DeviceUnit& unit, Waits waits, const std::string& arch) {
  static std::map<std::string, jit::Compiled> made;
  const std::string text = text_of(unit, waits);
  const auto known = made.find(arch + text);
  if (known != made.end()) return known->second;
  const int newest_major = gpu::find_driver() == nullptr ? INT_MAX : gpu::driver().major();
  return made[arch + text] = jit::find_nvrtc(newest_major).compile(text, headers_of(unit), arch);
}

void PtxTest::SetUp() {
  if (gpu::find_driver() != nullptr) {
    int count = 0;
    driver().check(driver().cuDeviceGetCount(&count), "cuDeviceGetCount");
    if (count == 0) GTEST_SKIP() << "NO GPU: the CUDA driver sees none";
    const gpu::DeviceProperties& properties = Card::get().device.properties();
    if (properties.major != 9) GTEST_SKIP() << "NO sm_90 GPU: this is " << properties.name;
  }
  ATTUNE_REQUIRE_GPU();
  Card::get().make_current();
}

void PtxTest::launch_bytes(const jit::DeviceUnit& unit, jit::Dim3 grid, const void* params, Waits waits,
                           bool programmatic) {
  Card& card = Card::get();
  card.last_launch = label_of(unit);
  // The driver only reads the parameters.
  gpu::Launch(card.load(unit, waits), grid, unit, programmatic)(driver(), const_cast<void*>(params), card.stream);
}

void PtxTest::finish() {
  Card& card = Card::get();
  *fmt::format_to_n(hung_message, sizeof hung_message - 1, "{} has not ended after {} s\n", card.last_launch,
                    seconds_until_hung)
       .out = '\0';
  std::signal(SIGALRM, close_hung_program);
  alarm(seconds_until_hung);
  const gpu::CUresult result = driver().cuStreamSynchronize(card.stream);
  alarm(0);
  driver().check(result, card.last_launch.c_str());
}

}  // namespace attune::ptx
