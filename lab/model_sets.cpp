// The attention calls of models people run, as one GPU sees them, and their gradients.
#include <string>
#include <string_view>

#include "lab/model_sets.hpp"

namespace attune::lab {
namespace {

// Whether a call is trained with, and what its gradients ask for beside those of q, k and v.
enum class Training { none, plain, sinks, bias };

struct Call {
  std::string_view problem, model;
  Training training;
};

constexpr Call calls[] = {
    {"b1 h32/8 q4096 k4096 d128 bf16 causal-br", "Llama 3 8B", Training::plain},
    {"b1 h64/8 q8192 k8192 d128 bf16 causal-br", "Llama 3 70B", Training::plain},
    {"b4 h28/4 q2048 k2048 d128 bf16 causal-br", "Qwen 2.5 7B", Training::plain},
    {"b1 h32/8 q8192 k8192 d128 bf16 causal-br w4095,0", "Mistral 7B", Training::plain},
    {"b1 h16/8 q8192 k8192 d256 bf16 causal-br cap50", "Gemma 2 9B, global layers", Training::plain},
    {"b1 h16/8 q8192 k8192 d256 bf16 causal-br w4095,0 cap50", "Gemma 2 9B, local layers", Training::plain},
    {"b1 h32/16 q8192 k8192 d128 bf16 causal-br w1023,0", "Gemma 3 27B, local layers", Training::plain},
    {"b1 h64/8 q4096 k4096 d64 bf16 causal-br sink", "gpt-oss, full layers", Training::sinks},
    {"b1 h64/8 q4096 k4096 d64 bf16 causal-br w127,0 sink", "gpt-oss, window layers", Training::sinks},
    {"b2 h32/32 q4096 k4096 d96 bf16 causal-br", "Phi 3 mini", Training::plain},
    {"b1 h128/128 q2048 k2048 d192/128 bf16 causal-br", "DeepSeek V3", Training::plain},
    {"b2 h16/16 q2048 k2048 d256 f16 causal-br", "GPT-J", Training::plain},
    {"b2 h71/1 q2048 k2048 d64 bf16 causal-br", "Falcon 7B", Training::plain},
    {"b2 h32/32 q4096 k4096 d80 bf16 causal-br", "StableLM", Training::plain},
    {"b2 h32/32 q2048 k2048 d128 bf16 causal-br bias=1h1k", "Bloom, MPT: ALiBi", Training::plain},
    {"b1 h32/8 q512 k8192 d128 bf16 causal-br", "a chunk of a prompt", Training::none},
    {"b1 h32/8 q2048 k32768 d128 bf16 causal-br", "a chunk of a long prompt", Training::none},
    {"b16 h32/8 q2048 k2048 d128 bf16 causal-br var=19386,19386", "packed", Training::plain},
    {"b64 h32/8 q1024 k1024 d128 bf16 causal-br var=16000,16000", "packed, many short ones", Training::plain},
    {"b8 h32/8 q2048 k2048 d128 bf16 causal-br mask=b11k", "padded on the left", Training::plain},
    {"b8 h32/8 q64 k2112 d128 bf16 mask=b1qk", "a tree of guesses", Training::none},
    {"b32 h12/12 q512 k512 d64 f16 mask=b11k", "BERT, padded", Training::plain},
    {"b16 h16/16 q512 k512 d64 bf16 bias=1hqk", "T5", Training::bias},
    {"b8 h20/20 q1500 k1500 d64 f16", "Whisper large, encoder", Training::plain},
    {"b8 h20/20 q448 k1500 d64 f16", "Whisper large, across", Training::plain},
    {"b64 h16/16 q257 k257 d64 f16", "ViT-L/14", Training::plain},
    {"b16 h24/24 q1370 k1370 d64 bf16", "DINOv2 giant", Training::plain},
    {"b16 h16/16 q729 k729 d72 bf16", "SigLIP so400m", Training::plain},
    {"b1024 h4/4 q49 k49 d32 f16 bias=1hqk", "Swin", Training::bias},
    {"b4 h16/16 q1024 k1024 d80 bf16 bias=bhqk", "SAM", Training::bias},
    {"b384 h4/4 q384 k384 d32 bf16 bias=1hqk mask=b11k", "triangles of proteins", Training::bias},
    {"b4 h40/40 q1024 k1024 d64 bf16 mask=b11k", "ESM 2 3B", Training::plain},
    {"b2 h8/8 q4096 k4096 d40 f16", "Stable Diffusion 1.5, 64 x 64", Training::plain},
    {"b2 h8/8 q1024 k1024 d80 f16", "Stable Diffusion 1.5, 32 x 32", Training::plain},
    {"b2 h8/8 q256 k256 d160 f16", "Stable Diffusion 1.5, 16 x 16", Training::plain},
    {"b2 h10/10 q4096 k4096 d64 f16", "SDXL", Training::plain},
    {"b2 h10/10 q4096 k77 d64 f16", "SDXL, text", Training::plain},
    {"b1 h24/24 q4608 k4608 d128 bf16", "Flux", Training::plain},
    {"b1 h40/40 q32760 k32760 d128 bf16", "video", Training::none},
    {"b1 h32/8 q1 k4096 d128 bf16", "decoding", Training::none},
    {"b1 h32/8 q1 k65536 d128 bf16", "decoding, long", Training::none},
    {"b32 h32/8 q1 k4096 d128 bf16 used-k", "decoding, a batch", Training::none},
    {"b128 h32/8 q1 k8192 d128 bf16 used-k", "decoding, a large batch", Training::none},
    {"b32 h64/8 q1 k4096 d64 bf16 sink used-k", "decoding, gpt-oss", Training::none},
    {"b8 h16/8 q1 k8192 d256 bf16 w4095,0 cap50 used-k", "decoding, Gemma 2 local", Training::none},
    {"b16 h32/8 q8 k8192 d128 bf16 causal-br used-k", "guesses in a row", Training::none},
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

std::string model_of(std::string_view problem) {
  for (const Call& call : calls)
    if (problem.substr(0, 4) == "fwd " && problem.substr(4) == call.problem) return std::string(call.model);
  return "";
}

}  // namespace attune::lab
