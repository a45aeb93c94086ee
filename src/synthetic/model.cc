#include "synthetic/model.h"

#include <fmt/ranges.h>

#include <array>

namespace choral::synthetic {
namespace {

struct NamedShape {
  std::string_view name;
  const char* config;
};

// With fewer layers where a whole model would not fit into a usual machine: what a layer costs is the same.
constexpr std::array<NamedShape, 10> kShapes{{
    {"135m",  // SmolLM2-135M
     R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
         "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64, "vocab_size": 49152, "rms_norm_eps": 1e-5,
         "max_position_embeddings": 8192, "rope_theta": 1e5, "tie_word_embeddings": true, "eos_token_id": 2})"},
    {"llama-1b",  // Llama-3.2-1B
     R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
         "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256, "rms_norm_eps": 1e-5,
         "max_position_embeddings": 131072, "rope_theta": 5e5, "tie_word_embeddings": true, "eos_token_id": 2})"},
    {"llama-8b",  // Llama-3.1-8B
     R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256, "rms_norm_eps": 1e-5,
         "max_position_embeddings": 131072, "rope_theta": 5e5, "eos_token_id": 2})"},
    {"gemma3-4b",  // Gemma 3 4B, its text half
     R"({"architectures": ["Gemma3ForCausalLM"], "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
         "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208, "rms_norm_eps": 1e-6,
         "max_position_embeddings": 131072, "rope_theta": 1e6, "rope_local_base_freq": 1e4, "query_pre_attn_scalar": 256,
         "sliding_window": 1024, "sliding_window_pattern": 6, "rope_scaling": {"rope_type": "linear", "factor": 8},
         "eos_token_id": 1})"},
    {"gemma4-e4b",  // 6 of Gemma 4 E4B's 42 layers, of which 2 share keys
     R"({"architectures": ["Gemma4ForCausalLM"], "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 6,
         "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "global_head_dim": 512, "vocab_size": 262144,
         "vocab_size_per_layer_input": 262144, "hidden_size_per_layer_input": 256, "num_kv_shared_layers": 2, "rms_norm_eps": 1e-6,
         "max_position_embeddings": 131072, "sliding_window": 512, "final_logit_softcapping": 30.0,
         "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention",
                         "full_attention"],
         "eos_token_id": 1})"},
    {"qwen3-30b-a3b",  // 4 of its 48 layers
     R"({"architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 4,
         "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "rms_norm_eps": 1e-6,
         "max_position_embeddings": 40960, "rope_theta": 1e6, "num_experts": 128, "num_experts_per_tok": 8,
         "moe_intermediate_size": 768, "norm_topk_prob": true, "eos_token_id": 2})"},
    {"qwen3.5-4b",  // 8 of its 32 layers
     R"({"architectures": ["Qwen3_5ForCausalLM"], "hidden_size": 2560, "intermediate_size": 9216, "num_hidden_layers": 8,
         "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 248320, "rms_norm_eps": 1e-6,
         "max_position_embeddings": 262144, "rope_theta": 1e7, "partial_rotary_factor": 0.25, "linear_num_key_heads": 16,
         "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
         "tie_word_embeddings": true, "eos_token_id": 2})"},
    {"qwen3.6-35b-a3b",  // 4 of its 40 layers
     R"({"architectures": ["Qwen3_5MoeForCausalLM"], "hidden_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 16,
         "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 248320, "rms_norm_eps": 1e-6,
         "max_position_embeddings": 262144, "rope_theta": 1e7, "partial_rotary_factor": 0.25, "linear_num_key_heads": 16,
         "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
         "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
         "eos_token_id": 2})"},
    {"granite-4-h-tiny",  // 10 of its 40 layers
     R"({"architectures": ["GraniteMoeHybridForCausalLM"], "hidden_size": 1536, "intermediate_size": 512, "num_hidden_layers": 10,
         "num_attention_heads": 12, "num_key_value_heads": 4, "vocab_size": 100352, "rms_norm_eps": 1e-5,
         "max_position_embeddings": 131072, "position_embedding_type": "nope", "embedding_multiplier": 12,
         "attention_multiplier": 0.0078125, "residual_multiplier": 0.22, "logits_scaling": 6, "num_experts": 64,
         "num_experts_per_tok": 6, "shared_intermediate_size": 1024, "mamba_n_heads": 48, "mamba_d_head": 64, "mamba_n_groups": 1,
         "mamba_d_state": 128, "mamba_d_conv": 4, "mamba_expand": 2,
         "layer_types": ["linear_attention", "linear_attention", "linear_attention", "linear_attention", "linear_attention",
                         "full_attention", "linear_attention", "linear_attention", "linear_attention", "linear_attention"],
         "tie_word_embeddings": true, "eos_token_id": 2})"},
    {"deepseek-v2-lite",  // 4 of its 27 layers
     R"({"architectures": ["DeepseekV2ForCausalLM"], "hidden_size": 2048, "intermediate_size": 10944, "num_hidden_layers": 4,
         "num_attention_heads": 16, "num_key_value_heads": 16, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
         "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 102400, "rms_norm_eps": 1e-6,
         "max_position_embeddings": 163840, "rope_theta": 10000, "num_experts": 64, "num_experts_per_tok": 6,
         "n_shared_experts": 2, "moe_intermediate_size": 1408, "first_k_dense_replace": 1, "eos_token_id": 2,
         "rope_scaling": {"rope_type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "mscale": 0.707,
                          "mscale_all_dim": 0.707, "beta_fast": 32, "beta_slow": 1}})"},
}};

}  // namespace

Result<io::ConfigMap> model_config(std::string_view name) {
  for (const auto& shape : kShapes) {
    if (shape.name == name) return io::ConfigMap::parse_json(shape.config, fmt::format("synthetic model {}", name));
  }
  return invalid_argument("no synthetic model is named '{}'; choose {}", name, fmt::join(model_names(), ", "));
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& shape : kShapes) names.emplace_back(shape.name);
  return names;
}

}  // namespace choral::synthetic
