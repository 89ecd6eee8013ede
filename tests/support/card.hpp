// Tests on a real card: a fixture with the driver's context current, and the tensors of one call in device memory.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "attune/attune.h"
#include "core/problem.hpp"
#include "lab/check/device_memory.hpp"
#include "lab/check/inputs.hpp"
#include "tests/support/gpu.hpp"

namespace attune::test {

// What outputs hold before a call. Memory that nothing has written is for initcheck, which sees what stays so.
enum class Outputs { poisoned, unwritten };

// The tensors of a dense problem on the device. A context must be current.
class CardCall {
 public:
  CardCall(const gpu::Driver& driver, const lab::Tensors& host, Outputs outputs = Outputs::poisoned)
      : problem(host.problem),
        q(copy(driver, host[Operand::q])),
        k(copy(driver, host[Operand::k])),
        v(copy(driver, host[Operand::v])) {
    problem.device_kind = DeviceKind::cuda;
    desc = desc_from(problem);
    o = output(driver, host[Operand::o], outputs);
    if (host[Operand::lse].allocated()) lse = output(driver, host[Operand::lse], outputs);
    args.struct_size = sizeof args;
    args.q = q.as<void>();
    args.k = k.as<void>();
    args.v = v.as<void>();
    args.o = o.as<void>();
    args.lse = lse.as<float>();
  }
  CardCall(const gpu::Driver& driver, const std::string& text, uint64_t seed) : CardCall(driver, inputs(text, seed)) {}

  void use_workspace(const gpu::Driver& driver, uint64_t bytes) {
    workspace = lab::DeviceMemory(driver, bytes);
    args.workspace = workspace.as<void>();
    args.workspace_bytes = bytes;
  }
  void use_workspace(const gpu::Driver& driver, attune_context* context) {
    uint64_t bytes = 0;
    ASSERT_EQ(attune_workspace_bytes(context, &desc, &bytes), ATTUNE_OK) << attune_last_error();
    use_workspace(driver, bytes);
  }

  std::vector<std::byte> result() const { return bytes_of_memory(o); }
  std::vector<std::byte> lse_result() const { return bytes_of_memory(lse); }

  static lab::Tensors inputs(const std::string& text, uint64_t seed) {
    cpu::Threads threads{attune_options{}};
    return lab::make_inputs(parse_problem(text), lab::InputKind::normal, seed, lab::Storage::dense, threads);
  }

  Problem problem;
  attune_forward_desc desc{};
  attune_forward_args args{};
  lab::DeviceMemory q, k, v, o, lse, workspace;

 private:
  static lab::DeviceMemory copy(const gpu::Driver& driver, const lab::Buffer& buffer) {
    return {driver, std::span(static_cast<const std::byte*>(buffer.data()), buffer.data_bytes())};
  }
  static lab::DeviceMemory output(const gpu::Driver& driver, const lab::Buffer& buffer, Outputs outputs) {
    if (outputs == Outputs::poisoned) return copy(driver, buffer);
    return {driver, buffer.data_bytes()};
  }
  static std::vector<std::byte> bytes_of_memory(const lab::DeviceMemory& memory) {
    std::vector<std::byte> bytes(memory.bytes());
    if (!bytes.empty()) memory.download(bytes);
    return bytes;
  }
};

// The first device's primary context is current, and there is an attune_context.
class CardTest : public testing::Test {
 protected:
  void SetUp() override {
    ATTUNE_REQUIRE_GPU();
    driver = &gpu::driver();
    ASSERT_EQ(attune_create(nullptr, &context), ATTUNE_OK);
    driver->check(driver->cuDevicePrimaryCtxRetain(&primary, 0), "cuDevicePrimaryCtxRetain");
    driver->check(driver->cuCtxSetCurrent(primary), "cuCtxSetCurrent");
  }
  void TearDown() override {
    attune_destroy(context);
    if (primary != nullptr) driver->cuDevicePrimaryCtxRelease_v2(0);
  }

  gpu::CUstream make_stream() {
    gpu::CUstream stream = nullptr;
    driver->check(driver->cuStreamCreate(&stream, gpu::CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    return stream;
  }

  const gpu::Driver* driver = nullptr;
  attune_context* context = nullptr;
  gpu::CUcontext primary = nullptr;
};

}  // namespace attune::test
