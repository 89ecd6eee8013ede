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

// Where a model learns its bias or its sinks, their gradients are asked for.
ProblemSet models_backward() {
  return {"models-bwd",
          "the gradients of models people train, as one GPU sees them",
          {
              "bwd b1 h32/8 q4096 k4096 d128 bf16 causal-br",                   // Llama 3 8B
              "bwd b1 h64/8 q8192 k8192 d128 bf16 causal-br",                   // Llama 3 70B
              "bwd b4 h28/4 q2048 k2048 d128 bf16 causal-br",                   // Qwen 2.5 7B
              "bwd b1 h32/8 q8192 k8192 d128 bf16 causal-br w4095,0",           // Mistral 7B
              "bwd b1 h16/8 q8192 k8192 d256 bf16 causal-br cap50",             // Gemma 2 9B, global layers
              "bwd b1 h16/8 q8192 k8192 d256 bf16 causal-br w4095,0 cap50",     // local layers
              "bwd b1 h32/16 q8192 k8192 d128 bf16 causal-br w1023,0",          // Gemma 3 27B, local layers
              "bwd b1 h64/8 q4096 k4096 d64 bf16 causal-br sink dsink",         // gpt-oss, full layers
              "bwd b1 h64/8 q4096 k4096 d64 bf16 causal-br w127,0 sink dsink",  // window layers
              "bwd b2 h32/32 q4096 k4096 d96 bf16 causal-br",                   // Phi 3 mini
              "bwd b1 h128/128 q2048 k2048 d192/128 bf16 causal-br",            // DeepSeek V3
              "bwd b2 h16/16 q2048 k2048 d256 f16 causal-br",                   // GPT-J
              "bwd b2 h71/1 q2048 k2048 d64 bf16 causal-br",                    // Falcon 7B
              "bwd b2 h32/32 q4096 k4096 d80 bf16 causal-br",                   // StableLM
              "bwd b2 h32/32 q2048 k2048 d128 bf16 causal-br bias=1h1k",        // Bloom, MPT: ALiBi as a bias per key
              "bwd b16 h32/8 q2048 k2048 d128 bf16 causal-br var=19386,19386",  // packed
              "bwd b64 h32/8 q1024 k1024 d128 bf16 causal-br var=16000,16000",  // many short ones
              "bwd b8 h32/8 q2048 k2048 d128 bf16 causal-br mask=b11k",         // padded
              "bwd b32 h12/12 q512 k512 d64 f16 mask=b11k",                     // BERT, padded
              "bwd b16 h16/16 q512 k512 d64 bf16 bias=1hqk dbias",              // T5
              "bwd b8 h20/20 q1500 k1500 d64 f16",                              // Whisper large, encoder
              "bwd b8 h20/20 q448 k1500 d64 f16",                               // and across
              "bwd b64 h16/16 q257 k257 d64 f16",                               // ViT-L/14
              "bwd b16 h24/24 q1370 k1370 d64 bf16",                            // DINOv2 giant
              "bwd b16 h16/16 q729 k729 d72 bf16",                              // SigLIP so400m
              "bwd b1024 h4/4 q49 k49 d32 f16 bias=1hqk dbias",                 // Swin
              "bwd b4 h16/16 q1024 k1024 d80 bf16 bias=bhqk dbias",             // SAM, relative positions
              "bwd b384 h4/4 q384 k384 d32 bf16 bias=1hqk dbias mask=b11k",     // triangle attention of proteins
              "bwd b4 h40/40 q1024 k1024 d64 bf16 mask=b11k",                   // ESM 2 3B
              "bwd b2 h8/8 q4096 k4096 d40 f16",                                // Stable Diffusion 1.5
              "bwd b2 h8/8 q1024 k1024 d80 f16",                                // its next layers
              "bwd b2 h8/8 q256 k256 d160 f16",                                 // and its last ones
              "bwd b2 h10/10 q4096 k4096 d64 f16",                              // SDXL
              "bwd b2 h10/10 q4096 k77 d64 f16",                                // and its text
              "bwd b1 h24/24 q4608 k4608 d128 bf16",                            // Flux
          }};
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
