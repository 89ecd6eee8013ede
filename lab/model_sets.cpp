// The attention calls of models people run, as one GPU sees them, and their gradients.
#include <string_view>

#include "lab/model_sets.hpp"

namespace attune::lab {
namespace {

// Whether a call is trained with, and what its gradients ask for beside those of q, k and v.
enum class Training { none, plain, sinks, bias };

struct Call {
  std::string_view problem;
  Training training;
};

constexpr Call calls[] = {
    {"b1 h32/8 q4096 k4096 d128 bf16 causal-br", Training::plain},                // Llama 3 8B
    {"b1 h64/8 q8192 k8192 d128 bf16 causal-br", Training::plain},                // Llama 3 70B
    {"b4 h28/4 q2048 k2048 d128 bf16 causal-br", Training::plain},                // Qwen 2.5 7B
    {"b1 h32/8 q8192 k8192 d128 bf16 causal-br w4095,0", Training::plain},        // Mistral 7B
    {"b1 h16/8 q8192 k8192 d256 bf16 causal-br cap50", Training::plain},          // Gemma 2 9B, global layers
    {"b1 h16/8 q8192 k8192 d256 bf16 causal-br w4095,0 cap50", Training::plain},  // local layers
    {"b1 h32/16 q8192 k8192 d128 bf16 causal-br w1023,0", Training::plain},       // Gemma 3 27B, local layers
    {"b1 h64/8 q4096 k4096 d64 bf16 causal-br sink", Training::sinks},            // gpt-oss, full layers
    {"b1 h64/8 q4096 k4096 d64 bf16 causal-br w127,0 sink", Training::sinks},     // window layers
    {"b2 h32/32 q4096 k4096 d96 bf16 causal-br", Training::plain},                // Phi 3 mini
    {"b1 h128/128 q2048 k2048 d192/128 bf16 causal-br", Training::plain},         // DeepSeek V3
    {"b2 h16/16 q2048 k2048 d256 f16 causal-br", Training::plain},                // GPT-J
    {"b2 h71/1 q2048 k2048 d64 bf16 causal-br", Training::plain},                 // Falcon 7B
    {"b2 h32/32 q4096 k4096 d80 bf16 causal-br", Training::plain},                // StableLM
    {"b2 h32/32 q2048 k2048 d128 bf16 causal-br bias=1h1k", Training::plain},     // Bloom, MPT: ALiBi as a bias per key
    {"b1 h32/8 q512 k8192 d128 bf16 causal-br", Training::none},                  // a chunk of a prompt
    {"b1 h32/8 q2048 k32768 d128 bf16 causal-br", Training::none},                // a chunk of a long one
    {"b16 h32/8 q2048 k2048 d128 bf16 causal-br var=19386,19386", Training::plain},  // packed
    {"b64 h32/8 q1024 k1024 d128 bf16 causal-br var=16000,16000", Training::plain},  // many short ones
    {"b8 h32/8 q2048 k2048 d128 bf16 causal-br mask=b11k", Training::plain},         // padded
    {"b8 h32/8 q64 k2112 d128 bf16 mask=b1qk", Training::none},                      // a tree of guesses
    {"b32 h12/12 q512 k512 d64 f16 mask=b11k", Training::plain},                     // BERT, padded
    {"b16 h16/16 q512 k512 d64 bf16 bias=1hqk", Training::bias},                     // T5
    {"b8 h20/20 q1500 k1500 d64 f16", Training::plain},                              // Whisper large, encoder
    {"b8 h20/20 q448 k1500 d64 f16", Training::plain},                               // and across
    {"b64 h16/16 q257 k257 d64 f16", Training::plain},                               // ViT-L/14
    {"b16 h24/24 q1370 k1370 d64 bf16", Training::plain},                            // DINOv2 giant
    {"b16 h16/16 q729 k729 d72 bf16", Training::plain},                              // SigLIP so400m
    {"b1024 h4/4 q49 k49 d32 f16 bias=1hqk", Training::bias},                        // Swin
    {"b4 h16/16 q1024 k1024 d80 bf16 bias=bhqk", Training::bias},                    // SAM, relative positions
    {"b384 h4/4 q384 k384 d32 bf16 bias=1hqk mask=b11k", Training::bias},            // triangle attention of proteins
    {"b4 h40/40 q1024 k1024 d64 bf16 mask=b11k", Training::plain},                   // ESM 2 3B
    {"b2 h8/8 q4096 k4096 d40 f16", Training::plain},                                // Stable Diffusion 1.5
    {"b2 h8/8 q1024 k1024 d80 f16", Training::plain},                                // its next layers
    {"b2 h8/8 q256 k256 d160 f16", Training::plain},                                 // and its last ones
    {"b2 h10/10 q4096 k4096 d64 f16", Training::plain},                              // SDXL
    {"b2 h10/10 q4096 k77 d64 f16", Training::plain},                                // and its text
    {"b1 h24/24 q4608 k4608 d128 bf16", Training::plain},                            // Flux
    {"b1 h40/40 q32760 k32760 d128 bf16", Training::none},                           // video
    {"b1 h32/8 q1 k4096 d128 bf16", Training::none},                                 // decoding, one sequence
    {"b1 h32/8 q1 k65536 d128 bf16", Training::none},                                // a long one
    {"b32 h32/8 q1 k4096 d128 bf16 used-k", Training::none},                         // a batch
    {"b128 h32/8 q1 k8192 d128 bf16 used-k", Training::none},                        // a large one
    {"b32 h64/8 q1 k4096 d64 bf16 used-k sink", Training::none},                     // gpt-oss
    {"b8 h16/8 q1 k8192 d256 bf16 w4095,0 used-k cap50", Training::none},            // Gemma 2, local layers
    {"b16 h32/8 q8 k8192 d128 bf16 causal-br used-k", Training::none},               // guesses in a row
};

std::string_view words_of(Training training) {
  return training == Training::sinks ? " dsink" : training == Training::bias ? " dbias" : "";
}

}  // namespace

ProblemSet models() {
  ProblemSet set{"models", "the attention of models people run, as one GPU sees it", {}};
  for (const Call& call : calls) set.problems.push_back("fwd " + std::string(call.problem));
  return set;
}

ProblemSet models_backward() {
  ProblemSet set{"models-bwd", "the gradients of those that are trained", {}};
  for (const Call& call : calls)
    if (call.training != Training::none)
      set.problems.push_back("bwd " + std::string(call.problem) + std::string(words_of(call.training)));
  return set;
}

}  // namespace attune::lab
