#include "lab/backward_sets.hpp"

#include "core/problem.hpp"

namespace attune::lab {

ProblemSet backward() {
  return {"backward",
          "gradients: every feature of attention, each dtype",
          {"bwd b2 h4/2 q100 k130 d64 f16", "bwd b1 h2/1 q130 k100 d64 bf16 causal-br",
           "bwd b1 h2/2 q70 k90 d64 f32 causal-tl", "bwd b1 h3/1 q65 k129 d40/72 f16 w30,10 dlse",
           "bwd b2 h2/2 q96 k96 d128 bf16 cap20 sink dsink", "bwd b2 h4/2 q80 k70 d32 f16 bias=1hqk dbias",
           "bwd b2 h2/1 q60 k80 d64 bf16 bias=b11k:f32 dbias mask=b1qk", "bwd b2 h2/1 q60 k80 d16 f32 bias=11q1 dbias",
           "bwd b4 h2/1 q90 k110 d64 bf16 causal-br var dlse sink dsink",
           "bwd b3 h2/2 q50 k140 d80 f16 used-q used-k mask=1hqk bhsd", "bwd b1 h2/1 q1 k300 d64 f16 scale-0.3",
           "bwd b1 h1/1 q33 k65 d512 f32 cap5", "bwd b1 h2/2 q20 k0 d64 f16 sink dsink",
           "bwd b1 h2/2 q0 k20 d64 f16 bias=1hqk dbias", "bwd b2 h8/1 q40 k40 d1/3 f32 causal-br any-order"}};
}

ProblemSet backward_of(const ProblemSet& forward, std::string name, std::string about) {
  ProblemSet set{std::move(name), std::move(about), {}};
  for (const std::string& text : forward.problems) {
    const Problem problem = parse_problem(text);
    if (problem.dtype == Dtype::bf16) set.problems.push_back("bwd" + text.substr(text.find(' ')));
  }
  return set;
}

}  // namespace attune::lab
