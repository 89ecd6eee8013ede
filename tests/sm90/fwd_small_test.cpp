// sm90/fwd_small joins parts of a row from several warpgroups and CTAs. Here the parts differ as much as they can:
// maxima far apart, parts that are wholly masked, CTAs and warpgroups without a single key; in every configuration that
// the kernel offers, through the gate.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/convert.hpp"
#include "gpu/kernel.hpp"
#include "gpu/runtime.hpp"
#include "lab/check/checker.hpp"
#include "lab/check/cuda_backend.hpp"
#include "tests/support/card.hpp"

namespace attune::sm90 {
namespace {

using lab::Case;
using lab::Contestant;
using lab::InputKind;
using lab::Judgement;
using lab::Outcome;
using lab::Storage;
using lab::Tensors;

constexpr const char* kernel_name = "sm90/fwd_small";

// From a single key on: fewer blocks of 64 keys than there are parts, just as many, and one more, for 1 to 32 parts.
constexpr const char* lengths[] = {"b1 h2/1 q1 k1",     "b1 h2/2 q5 k63",   "b1 h4/2 q64 k64",   "b2 h2/2 q64 k65",
                                   "b1 h2/2 q70 k129",  "b1 h2/2 q64 k192", "b1 h2/1 q64 k256",  "b1 h2/2 q130 k257",
                                   "b1 h1/1 q200 k513", "b1 h1/1 q64 k960", "b1 h2/2 q64 k1025", "b1 h4/1 q16 k2048",
                                   "b1 h1/1 q64 k2049"};
// Rows that see nothing, tiles that see nothing, keys that no row sees, parts behind the diagonal.
constexpr const char* causal_lengths[] = {
    "b1 h2/1 q512 k64 causal-br",  "b1 h2/2 q300 k1 causal-br",   "b1 h2/2 q257 k129 causal-br",
    "b1 h2/2 q64 k1024 causal-br", "b1 h4/1 q1 k700 causal-br",   "b2 h2/2 q300 k300 causal-br",
    "b1 h1/1 q90 k2100 causal-br", "b1 h8/1 q40 k1000 causal-br", "b1 h2/2 q64 k1024 causal-tl",
    "b1 h2/2 q1000 k64 causal-tl", "b1 h2/2 q100 k500 causal-tl", "b1 h2/2 q500 k333 causal-tl"};

class HopperSmall : public test::CardTest {
 protected:
  void SetUp() override {
    CardTest::SetUp();
    if (IsSkipped()) return;
    runtime = std::make_unique<gpu::Runtime>();
    const gpu::DeviceProperties& device = runtime->properties(0);
    if (device.capability() != 90) GTEST_SKIP() << "NO sm_90 GPU: " << device.name;
    truth = lab::make_cuda_reference();
  }

  std::vector<std::string> configs_of(const std::string& text) const {
    Problem problem = parse_problem(text);
    problem.device_kind = DeviceKind::cuda;
    return gpu::find_gpu_kernel(kernel_name).space(problem, runtime->properties(0));
  }

  bool checked_cluster_of(int blocks) const {
    return std::ranges::any_of(checked, [&](const std::string& config) {
      return config.find(fmt::format(".cluster = {},", blocks)) != config.npos;
    });
  }

  lab::Executor& executor_of(const std::string& config) {
    auto& executor = executors[config];
    if (!executor) executor = lab::make_cuda_executor(0, config);
    return *executor;
  }

  void expect_good(const std::string& text, InputKind input) {
    const std::vector<std::string> configs = configs_of(text);
    std::vector<Contestant> contestants;
    for (const std::string& config : configs) contestants.push_back({&executor_of(config), kernel_name});
    lab::Checker checker(*contestants.at(0).executor, *truth, threads, lab::cuda_rows);
    const std::vector<Outcome> outcomes =
        checker.check(Case{text, "", input, 3, Storage::dense, std::nullopt}, contestants);
    for (size_t i = 0; i < outcomes.size(); ++i) {
      ASSERT_EQ(outcomes[i].unsupported, "") << text;
      expect_passed(outcomes[i].judgement, fmt::format("{} ({}) {}", text, name_of(input), configs[i]));
      checked.insert(configs[i]);
    }
  }

  static void expect_passed(const Judgement& judgement, const std::string& what) {
    EXPECT_TRUE(judgement.ok) << what << ": " << judgement.failure << "; rel_rms " << judgement.rel_rms << " of "
                              << judgement.rel_rms_bound << ", max_ulp " << judgement.max_ulp << " of "
                              << judgement.max_ulp_bound << ", lse_err " << judgement.lse_err << " of "
                              << judgement.lse_bound << ", row " << judgement.worst.batch << "/" << judgement.worst.head
                              << "/" << judgement.worst.row;
  }

  cpu::Threads threads{attune_options{}};
  std::unique_ptr<gpu::Runtime> runtime;
  std::unique_ptr<lab::ReferenceSource> truth;
  std::map<std::string, std::unique_ptr<lab::Executor>> executors;
  std::set<std::string> checked;
};

TEST_F(HopperSmall, PartsAreJoinedAtEveryLength) {
  for (const char* head : {"d64 f16", "d64 bf16", "d128 bf16"})
    for (const InputKind input : {InputKind::normal, InputKind::rising_max, InputKind::far_negative})
      for (const char* length : lengths) expect_good(fmt::format("fwd {} {}", length, head), input);
  for (const char* head : {"d64 f16", "d128 bf16"})
    for (const std::string& config : configs_of(fmt::format("fwd {} {}", lengths[0], head)))
      EXPECT_TRUE(checked.contains(config)) << config;
  for (const int blocks : {1, 2, 4, 8, 16})
    EXPECT_EQ(checked_cluster_of(blocks), runtime->properties(0).clusters_of(blocks) > 0) << "cluster of " << blocks;
}

TEST_F(HopperSmall, MaskedPartsCountForNothing) {
  for (const char* head : {"d64 bf16", "d128 f16"})
    for (const InputKind input : {InputKind::normal, InputKind::rising_max, InputKind::far_negative})
      for (const char* length : causal_lengths) expect_good(fmt::format("fwd {} {}", length, head), input);
}

// In turn each block of 64 keys holds all the weight of most rows, whichever group or CTA has it.
TEST_F(HopperSmall, EveryPartMayOutweighTheOthers) {
  constexpr int64_t block = 64;
  for (const char* text :
       {"fwd b1 h1/1 q100 k640 d64 f16", "fwd b1 h1/1 q100 k640 d128 bf16", "fwd b1 h1/1 q640 k640 d64 bf16 causal-br",
        "fwd b1 h1/1 q64 k1024 d64 f16", "fwd b1 h1/1 q64 k2048 d128 bf16"}) {
    const Problem problem = parse_problem(text);
    for (int64_t first = 0; first < problem.seq_k; first += block) {
      Tensors tensors = make_inputs(problem, InputKind::normal, 11, Storage::dense, threads);
      for (int64_t key = first; key < first + block; ++key)
        for (int64_t d = 0; d < problem.dim_qk; ++d) {
          const int64_t at = key * tensors.problem.k.row + d;
          store_element(tensors[Operand::k].data(), problem.dtype, at,
                        12 * load_element(tensors[Operand::k].data(), problem.dtype, at));
        }
      const lab::RowChoice rows = choose_rows(tensors, lab::cuda_rows, 1);
      const lab::ReferenceRows right = truth->rows(tensors, rows.rows);
      const lab::Ideal ideal = ideal_rows(tensors, choose_ideal_rows(tensors, rows, lab::cuda_rows, 1), threads);
      for (const std::string& config : configs_of(text)) {
        tensors[Operand::o].poison();
        tensors[Operand::lse].poison();
        executor_of(config).run(kernel_name, tensors);
        expect_passed(judge(tensors, rows, right, ideal, lab::frozen_accuracy()),
                      fmt::format("{}, heavy keys from {}, {}", text, first, config));
      }
    }
  }
}

}  // namespace
}  // namespace attune::sm90
