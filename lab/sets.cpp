#include "lab/sets.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>

#include "core/error.hpp"
#include "core/problem.hpp"
#include "lab/backward_sets.hpp"
#include "lab/model_sets.hpp"

namespace attune::lab {
namespace {

struct Shape {
  int64_t batch, heads, length, dim;
};

std::string problem_text(const Shape& s, std::string_view dtype, std::string_view mask) {
  return fmt::format("fwd b{0} h{1}/{1} q{2} k{2} d{3} {4}{5}", s.batch, s.heads, s.length, s.dim, dtype, mask);
}

constexpr std::string_view full = "";
constexpr std::string_view causal = " causal-br";

// In both 16-bit types.
void add(ProblemSet& set, const Shape& shape, std::initializer_list<std::string_view> masks) {
  for (const std::string_view dtype : {"f16", "bf16"})
    for (const std::string_view mask : masks) set.problems.push_back(problem_text(shape, dtype, mask));
}

ProblemSet reports7() {
  ProblemSet set{"reports7", "the seven correctness shapes of the reports", {}};
  for (const int64_t length : {128, 256}) add(set, {1, 8, length, 64}, {full});
  add(set, {1, 8, 512, 64}, {full, causal});
  add(set, {2, 8, 1024, 64}, {causal});
  add(set, {1, 8, 2048, 64}, {full, causal});
  return set;
}

ProblemSet reports5() {
  ProblemSet set{"reports5", "five shapes of the reports, each full and causal", {}};
  for (const Shape& shape :
       {Shape{1, 8, 512, 64}, {2, 8, 512, 64}, {1, 8, 1024, 64}, {1, 4, 2048, 64}, {4, 16, 256, 64}})
    add(set, shape, {full, causal});
  return set;
}

ProblemSet mission() {
  ProblemSet set{"mission", "the shape the reports set out to win", {}};
  add(set, {1, 8, 512, 64}, {full, causal});
  return set;
}

ProblemSet h100() {
  ProblemSet set{"h100", "the large shape of the reports", {}};
  add(set, {16, 16, 2048, 64}, {full, causal});
  return set;
}

ProblemSet llama7b() {
  ProblemSet set{"llama7b", "the attention of one LLaMA-7B layer, prefill of 2048 tokens", {}};
  add(set, {1, 32, 2048, 128}, {causal});
  return set;
}

ProblemSet grid() {
  ProblemSet set{"grid", "batch * length = 16384, heads * dim = 2048: the shapes peers publish", {}};
  for (const int64_t dim : {64, 128, 256})
    for (int64_t length = 512; length <= 16384; length *= 2)
      add(set, {16384 / length, 2048 / dim, length, dim}, {full, causal});
  return set;
}

ProblemSet grid_backward() { return backward_of(grid(), "grid-bwd", "gradients at the shapes of grid, in bf16"); }

ProblemSet small() {
  ProblemSet set{"small", "shapes of a few microseconds on a GPU, where launches and idle processors decide", {}};
  for (const Shape& shape : {Shape{1, 8, 128, 64},
                             {1, 8, 512, 64},
                             {1, 8, 1024, 64},
                             {1, 8, 2048, 64},
                             {2, 8, 512, 64},
                             {4, 16, 512, 64},
                             {1, 16, 512, 128},
                             {1, 32, 512, 128}})
    add(set, shape, {full, causal});
  return set;
}

// What the bars of lab/bars.toml speak of, in the element types they speak of.
ProblemSet latency() {
  ProblemSet set{"latency", "the shapes of small with bars: f16 for head dimension 64, bf16 for 128", {}};
  for (const std::string& problem : small().problems) {
    const Problem p = parse_problem(problem);
    if ((p.dim_qk == 64) == (p.dtype == Dtype::f16)) set.problems.push_back(problem);
  }
  return set;
}

// The same, where a call may start before the one ahead of it has ended.
ProblemSet latency_overlap() {
  ProblemSet set{"latency-overlap", "the shapes of latency as calls that may start early, for bench --mode pdl", {}};
  for (const std::string& problem : latency().problems) set.problems.push_back(problem + " overlap kvready");
  return set;
}

ProblemSet prefill() {
  ProblemSet set{"prefill", "the large shapes with bars: grid and llama7b in bf16, h100 in f16", {}};
  const auto add_those_in = [&](Dtype dtype, const ProblemSet& of) {
    for (const std::string& problem : of.problems)
      if (parse_problem(problem).dtype == dtype) set.problems.push_back(problem);
  };
  add_those_in(Dtype::bf16, grid());
  add_those_in(Dtype::f16, h100());
  add_those_in(Dtype::bf16, llama7b());
  return set;
}

// Most calls of inference ask for no LSE, and neither do these; one row shows what the LSE costs. K and V of decoding
// have 512 MiB, so that they come from memory: there are L3 caches of 300 MiB.
ProblemSet cpu() {
  return {
      "cpu",
      "what the CPU kernels are measured by: long rows, the mission's shape, decoding from memory, the smallest call",
      {
          "fwd b1 h8/8 q1024 k1024 d128 bf16 nolse",
          "fwd b1 h8/8 q1024 k1024 d128 bf16 nolse bhsd",
          "fwd b1 h8/8 q1024 k1024 d128 bf16",
          "fwd b1 h8/8 q2048 k2048 d128 bf16 causal-br nolse",
          "fwd b1 h8/8 q1024 k1024 d64 bf16 nolse",
          "fwd b1 h8/8 q512 k512 d64 bf16 nolse",
          "fwd b1 h8/8 q512 k512 d64 bf16 nolse bhsd",
          "fwd b1 h8/8 q512 k512 d64 bf16 causal-br nolse",
          "fwd b1 h8/8 q1024 k1024 d128 f16 nolse",
          "fwd b1 h8/8 q1024 k1024 d128 f32",
          "fwd b1 h8/8 q1024 k1024 d128 f32 high",
          "fwd b32 h8/8 q1 k4096 d128 bf16",
          "fwd b32 h32/8 q1 k4096 d128 bf16",
          "fwd b32 h64/8 q1 k4096 d128 bf16",
          "fwd b1 h1/1 q1 k1 d64 f32",
      }};
}

ProblemSet features() {
  return {"features",
          "every feature alone and in company, at sizes a CPU does in a blink",
          {
              "fwd b2 h4/4 q96 k96 d64 f16",
              "fwd b2 h4/4 q96 k96 d64 bf16",
              "fwd b2 h4/4 q96 k96 d64 f32",
              "fwd b2 h4/4 q96 k96 d64 f16 bhsd",
              "fwd b2 h6/2 q80 k112 d64 bf16",
              "fwd b1 h8/1 q80 k112 d64 f16",
              "fwd b1 h4/4 q96 k160 d64 f16 causal-tl",
              "fwd b1 h4/4 q96 k160 d64 f16 causal-br",
              "fwd b1 h4/4 q160 k96 d64 bf16 causal-tl",
              "fwd b1 h4/4 q160 k96 d64 bf16 causal-br",
              "fwd b1 h4/4 q160 k160 d64 f16 w24,0",
              "fwd b1 h4/4 q160 k200 d64 bf16 w17,9",
              "fwd b1 h4/4 q160 k160 d64 f16 causal-br w31,-1",
              "fwd b1 h4/4 q160 k200 d64 f16 causal-tl w31,-1",
              "fwd b2 h2/2 q96 k96 d64 f16 cap15",
              "fwd b2 h2/2 q96 k96 d64 bf16 sink",
              "fwd b2 h2/2 q96 k96 d64 f16 bias=bhqk",
              "fwd b2 h2/2 q96 k96 d64 bf16 bias=11qk:f32",
              "fwd b2 h2/2 q96 k96 d64 f16 bias=1h1k",
              "fwd b2 h2/2 q96 k96 d64 f16 mask=bhqk",
              "fwd b2 h2/2 q96 k96 d64 bf16 mask=b11k",
              "fwd b4 h2/2 q96 k96 d64 f16 var",
              "fwd b4 h2/1 q96 k130 d64 bf16 causal-br var",
              "fwd b4 h2/2 q96 k96 d64 f16 used-q used-k",
              "fwd b4 h2/2 q64 k96 d64 f16 causal-br var used-k",
              "fwd b2 h2/2 q96 k96 d64 f16 nolse",
              "fwd b2 h2/2 q96 k96 d64 f16 overlap",
              "fwd b2 h2/2 q96 k96 d64 f16 overlap kvready",
              "fwd b2 h2/2 q96 k96 d64 f16 scale1",
              "fwd b2 h2/2 q96 k96 d64 bf16 scale0",
              "fwd b2 h2/2 q96 k96 d64 f16 scale-0.125",
              "fwd b1 h1/1 q32 k32 d64 f16 cap5 scale-0.5",
              "fwd b1 h2/1 q80 k2048 d64 f16 sink",       // keys are split where rows are few
              "fwd b1 h2/1 q80 k320 d64 bf16 causal-br",  // more keys than a bf16 can count
              "fwd b1 h2/1 q130 k3 d64 bf16 scale0.01",   // an LSE near 0 is compared most strictly
              "fwd b1 h2/2 q96 k96 d192/128 bf16",
              "fwd b1 h2/2 q96 k96 d80 f16",
              "fwd b1 h2/2 q96 k96 d32/96 f16",
              "fwd b1 h2/2 q96 k96 d256 bf16",
              "fwd b1 h1/1 q64 k96 d512 f16",
              "fwd b3 h4/2 q72 k104 d64 f16 causal-br w40,-1 cap20 sink bias=1h1k mask=b1qk",
              "fwd b3 h4/2 q72 k104 d64/48 bf16 causal-tl cap20 sink bias=bhqk:f32 mask=1h1k var used-q used-k bhsd",
          }};
}

// Long enough for many tiles and a rescale at each, odd enough for tails, small enough for every row of every kernel.
ProblemSet hostile() {
  return {"hostile",
          "what every kind of hostile input is tried on",
          {
              "fwd b1 h2/1 q130 k300 d64 f16",
              "fwd b1 h2/1 q130 k300 d64 bf16",
              "fwd b1 h2/1 q130 k300 d64 f32",
              "fwd b1 h2/2 q200 k200 d128 f16 causal-br",
              "fwd b1 h2/2 q200 k200 d128 bf16 causal-br",
              "fwd b1 h2/2 q160 k260 d64 bf16 w70,10 sink",
              "fwd b1 h2/1 q96 k200 d64/96 f16 cap20 bias=1hqk mask=b11k",
          }};
}

// Lengths at which a lost tile is small beside the rest.
ProblemSet long_keys() {
  return {"long",
          "few rows and many keys",
          {
              "fwd b1 h2/1 q80 k8192 d64 f16",
              "fwd b1 h2/1 q80 k8192 d64 bf16 causal-br",
              "fwd b1 h1/1 q16 k16384 d128 bf16",
          }};
}

// The order of the work depends on where keys lie; how they are split must not.
ProblemSet decode() {
  return {"decode",
          "one or two rows and many keys, in small heads",
          {
              "fwd b2 h32/8 q1 k4072 d8 bf16",
              "fwd b4 h8/8 q1 k2048 d16 bf16",
              "fwd b3 h16/4 q1 k3000 d24 f16",
              "fwd b5 h8/4 q2 k1500 d16/8 f32",
              "fwd b4 h32/2 q1 k4096 d16 bf16 bhsd",
          }};
}

ProblemSet merge() {
  return {"merge",
          "partial results joined: few and many parts, every type, rows that no part saw a key for",
          {
              "merge p2 b1 h8 q512 d64 f16",
              "merge p2 b1 h8 q512 d64 bf16 bhsd",
              "merge p1 b2 h3 q65 d80 f32",
              "merge p4 b2 h4 q129 d128 bf16 parts-f32",
              "merge p16 b1 h4 q1 d128 f16 parts-f32 nolse",
              "merge p3 b1 h2 q63 d256 f32 parts-bf16",
              "merge p256 b1 h2 q9 d64 bf16",
              "merge p8 b1 h1 q33 d512 f16",
          }};
}

ProblemSet edges() {
  ProblemSet set{"edges", "lengths at and beside tile edges, tails, one row, one key, nothing at all", {}};
  for (const int64_t length : {63, 64, 65, 127, 128, 129, 257})
    for (const std::string_view mask : {full, causal})
      set.problems.push_back(fmt::format("fwd b1 h2/2 q{0} k{0} d64 f16{1}", length, mask));
  for (const std::string_view extents :
       {"q1 k1", "q1 k2", "q1 k128", "q1 k1000", "q128 k1", "q1000 k1", "q3 k1025", "q333 k64", "q65 k63", "q63 k65"})
    for (const std::string_view mask : {full, causal, std::string_view(" causal-tl")})
      set.problems.push_back(fmt::format("fwd b1 h2/1 {} d64 bf16{}", extents, mask));
  for (const int64_t dim : {1, 2, 3, 7, 8, 9, 31, 33, 63, 65, 127, 129, 255, 511})
    set.problems.push_back(fmt::format("fwd b1 h2/2 q33 k70 d{} f16", dim));
  for (const std::string_view extents : {"b0 h2/2 q8 k8", "b1 h0/0 q8 k8", "b1 h2/2 q0 k8", "b1 h2/2 q8 k0"})
    set.problems.push_back(fmt::format("fwd {} d64 f16", extents));
  set.problems.emplace_back("fwd b1 h2/2 q8 k0 d64 f16 sink");
  set.problems.emplace_back("fwd b1 h2/2 q4096 k1 d8 bf16");
  set.problems.emplace_back("fwd b1 h1/1 q2 k5000 d64 f16 causal-br");
  set.problems.emplace_back("fwd b1 h1/1 q2 k33000 d64 f16");
  return set;
}

ProblemSet canonical(ProblemSet set) {
  for (std::string& problem : set.problems) problem = to_string(parse_problem(problem));
  return set;
}

ProblemSet set_from_file(const std::filesystem::path& path) {
  toml::table table;
  try {
    table = toml::parse_file(path.string());
  } catch (const toml::parse_error& error) {
    fail(ATTUNE_INVALID_ARGUMENT, "{}, line {}: {}", path.string(), error.source().begin.line, error.description());
  }
  ProblemSet set{table["name"].value_or(path.stem().string()), table["about"].value_or(std::string("")), {}};
  const toml::array* problems = table["problems"].as_array();
  if (problems == nullptr || problems->empty())
    fail(ATTUNE_INVALID_ARGUMENT,
         "{} has no problems; it must have a line such as problems = [\"fwd b1 h8/8 q512 k512 "
         "d64 f16\"]",
         path.string());
  for (const toml::node& node : *problems) {
    const auto text = node.value<std::string>();
    if (!text)
      fail(ATTUNE_INVALID_ARGUMENT, "{}, line {}: a problem must be a string", path.string(), node.source().begin.line);
    try {
      set.problems.push_back(to_string(parse_problem(*text)));
    } catch (const Error& error) {
      fail(error.status, "{}, line {}: {}", path.string(), node.source().begin.line, error.what());
    }
  }
  return set;
}

// What a problem costs whoever checks it, in operations of attention: numbers are made, copied and compared, too.
double work_of(const Problem& problem) {
  constexpr double operations_per_number = 512;
  const auto rows = [](int64_t batch, int64_t heads, int64_t length) {
    return static_cast<double>(batch) * static_cast<double>(heads) * static_cast<double>(length);
  };
  const double numbers =
      static_cast<double>(problem.dim_qk + problem.dim_v) *
      (rows(problem.batch, problem.heads_q, problem.seq_q) + rows(problem.batch, problem.heads_kv, problem.seq_k));
  return std::max(useful_flops(problem), operations_per_number * numbers);
}

}  // namespace

const std::vector<ProblemSet>& builtin_sets() {
  static const std::vector<ProblemSet> sets = [] {
    std::vector<ProblemSet> all;
    for (const auto& make : {features, edges,           hostile,  long_keys, decode, merge,         backward,
                             mission,  reports7,        reports5, llama7b,   h100,   small,         grid,
                             latency,  latency_overlap, prefill,  cpu,       models, grid_backward, models_backward})
      all.push_back(canonical(make()));
    return all;
  }();
  return sets;
}

ProblemSet find_set(std::string_view name_or_path) {
  std::string known;
  for (const ProblemSet& set : builtin_sets()) {
    if (set.name == name_or_path) return set;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", set.name);
  }
  const std::filesystem::path path(name_or_path);
  if (path.extension() == ".toml") {
    if (!std::filesystem::exists(path)) fail(ATTUNE_INVALID_ARGUMENT, "there is no file {}", path.string());
    return set_from_file(path);
  }
  fail(ATTUNE_INVALID_ARGUMENT, "there is no set '{}'; the sets are {}, or the path of a .toml file", name_or_path,
       known);
}

std::string reduced(const std::string& problem, double flops) {
  Problem p = parse_problem(problem);
  if (work_of(p) <= flops) return problem;
  const Layout layout = p.q.head > p.q.row ? Layout::bhsd : Layout::bshd;
  const auto shape = [](const attune_score_strides& s) {
    return ScoreShape{s.batch != 0, s.head != 0, s.query != 0, s.key != 0};
  };
  const ScoreShape bias = shape(p.bias), mask = shape(p.mask);
  while (work_of(p) > flops) {
    if (p.batch > 1) {
      p.batch /= 2;
    } else if (p.heads_kv > 1 && p.heads_kv % 2 == 0) {
      p.heads_kv /= 2;
      p.heads_q /= 2;
    } else if (p.group() > 1 && p.heads_q % 2 == 0) {
      p.heads_q /= 2;
    } else if (p.seq_q > 1) {
      p.seq_q /= 2;
    } else {
      break;
    }
    if (p.packed()) {
      p.total_q = p.batch * p.seq_q;
      p.total_k = p.batch * p.seq_k;
    }
  }
  set_contiguous(p, layout, bias, mask);
  return to_string(p);
}

}  // namespace attune::lab
