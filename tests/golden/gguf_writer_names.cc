#include "golden/gguf_writer_names.h"

#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"

namespace choral::golden {
namespace {

using Json = nlohmann::json;

using Names = std::vector<std::pair<std::string_view, std::string_view>>;

// What a family calls otherwise.
Names family_names(const Json& config) {
  const std::string type = config.at("model_type");
  if (is_gemma(config)) {
    return {{"post_attention_layernorm", "post_attention_norm"},
            {"pre_feedforward_layernorm", "ffn_norm"},
            {"post_feedforward_layernorm", "post_ffw_norm"}};
  }
  if (type == "olmo3" || type == "exaone4") {
    return {{"post_attention_layernorm", "post_attention_norm"}, {"post_feedforward_layernorm", "post_ffw_norm"}};
  }
  if (type == "glm4") {
    return {{"post_self_attn_layernorm", "post_attention_norm"},
            {"post_mlp_layernorm", "post_ffw_norm"},
            {"mlp.gate_up_proj", "ffn_up"}};
  }
  if (type.starts_with("hunyuan_v1")) {
    return {{"self_attn.query_layernorm", "attn_q_norm"},
            {"self_attn.key_layernorm", "attn_k_norm"},
            {"mlp.gate.wg", "ffn_gate_inp"},
            {"mlp.shared_mlp.gate_proj", "ffn_gate_shexp"},
            {"mlp.shared_mlp.up_proj", "ffn_up_shexp"},
            {"mlp.shared_mlp.down_proj", "ffn_down_shexp"}};
  }
  if (is_gemma4(config)) {
    return {{"post_attention_layernorm", "post_attention_norm"},
            {"pre_feedforward_layernorm_2", "pre_ffw_norm_2"},
            {"pre_feedforward_layernorm", "ffn_norm"},
            {"post_feedforward_layernorm_1", "post_ffw_norm_1"},
            {"post_feedforward_layernorm_2", "post_ffw_norm_2"},
            {"post_feedforward_layernorm", "post_ffw_norm"},
            {"post_per_layer_input_norm", "post_norm"},
            {"per_layer_input_gate", "inp_gate"},
            {".per_layer_projection.", ".proj."},
            {"layer_scalar", "layer_output_scale.weight"},
            {"router.proj", "ffn_gate_inp"},
            {"router.scale", "ffn_gate_inp.scale"},
            {"router.per_expert_scale", "ffn_down_exps.scale"}};
  }
  if (type == "phi3") return {{"self_attn.qkv_proj", "attn_qkv"}, {"mlp.gate_up_proj", "ffn_up"}};
  if (type == "gpt_oss") {
    return {{"self_attn.sinks", "attn_sinks.weight"},
            {"post_attention_layernorm", "post_attention_norm"},
            {"mlp.router", "ffn_gate_inp"}};
  }
  if (type == "qwen2_moe") {
    return {{"mlp.gate.", "ffn_gate_inp."},
            {"mlp.shared_expert_gate.", "ffn_gate_inp_shexp."},
            {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
            {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
            {"mlp.shared_expert.down_proj", "ffn_down_shexp"}};
  }
  if (type.starts_with("granitemoe")) {
    const bool mixture = config.at("num_local_experts") > 0;
    return {{"block_sparse_moe.router", "ffn_gate_inp"},
            {"shared_mlp.gate_proj", mixture ? "ffn_gate_shexp" : "ffn_gate"},
            {"shared_mlp.up_proj", mixture ? "ffn_up_shexp" : "ffn_up"},
            {"shared_mlp.output_linear", mixture ? "ffn_down_shexp" : "ffn_down"},
            {"mamba.in_proj", "ssm_in"},
            {"mamba.conv1d", "ssm_conv1d"},
            {"mamba.dt_bias", "ssm_dt.bias"},
            {"mamba.A_log", "ssm_a"},
            {"mamba.D", "ssm_d"},
            {"mamba.norm", "ssm_norm"},
            {"mamba.out_proj", "ssm_out"}};
  }
  if (type == "llama4_text") {
    return {{"feed_forward.router", "ffn_gate_inp"},
            {"feed_forward.shared_expert.gate_proj", "ffn_gate_shexp"},
            {"feed_forward.shared_expert.up_proj", "ffn_up_shexp"},
            {"feed_forward.shared_expert.down_proj", "ffn_down_shexp"},
            {"feed_forward.", "ffn_"}};
  }
  if (type == "ernie4_5_moe") {
    return {{"mlp.moe_statics.e_score_correction_bias", "exp_probs_b.bias"},
            {"mlp.gate.", "ffn_gate_inp."},
            {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
            {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
            {"mlp.shared_experts.down_proj", "ffn_down_shexp"}};
  }
  if (type == "phimoe") return {{"block_sparse_moe.gate.", "ffn_gate_inp."}};
  if (type == "minimax_m2") {
    return {{"block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias"}, {"block_sparse_moe.gate.", "ffn_gate_inp."}};
  }
  if (type == "glm4_moe") {
    return {{"post_attention_layernorm", "post_attention_norm"},
            {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
            {"mlp.gate.", "ffn_gate_inp."},
            {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
            {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
            {"mlp.shared_experts.down_proj", "ffn_down_shexp"}};
  }
  if (has_delta_nets(config)) {
    return {{"post_attention_layernorm", "post_attention_norm"},
            {"linear_attn.in_proj_qkvz", "ssm_in"},
            {"linear_attn.in_proj_ba", "ssm_ba"},
            {"linear_attn.in_proj_qkv", "attn_qkv"},
            {"linear_attn.in_proj_z", "attn_gate"},
            {"linear_attn.in_proj_a", "ssm_alpha"},
            {"linear_attn.in_proj_b", "ssm_beta"},
            {"linear_attn.A_log", "ssm_a"},
            {"linear_attn.dt_bias", "ssm_dt.bias"},
            {"linear_attn.conv1d", "ssm_conv1d"},
            {"linear_attn.norm", "ssm_norm"},
            {"linear_attn.out_proj", "ssm_out"},
            {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
            {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
            {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
            {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
            {"mlp.gate.", "ffn_gate_inp."}};
  }
  return {{"self_attn.q_a_layernorm", "attn_q_a_norm"},
          {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
          {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
          {"self_attn.q_a_proj", "attn_q_a"},
          {"self_attn.q_b_proj", "attn_q_b"},
          {"self_attn.kv_b_proj", "attn_kv_b"},
          {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
          {"mlp.gate.", "ffn_gate_inp."},
          {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
          {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
          {"mlp.shared_experts.down_proj", "ffn_down_shexp"}};
}

}  // namespace

std::string stacked_name(const std::string& name) {
  const size_t at = name.find(".experts.");
  if (at == name.npos) return {};
  const std::string layer = name.substr(13, name.find('.', 13) - 13), kind = name.substr(name.rfind('.'));
  for (const auto& [hf, gguf] :
       {std::pair("gate_up_proj", "gate_up"), std::pair("gate_proj", "gate"), std::pair("up_proj", "up"),
        std::pair("down_proj", "down"), std::pair("w1", "gate"), std::pair("w3", "up"), std::pair("w2", "down")}) {
    if (name.find(hf, at) != name.npos) return "blk." + layer + ".ffn_" + gguf + "_exps" + kind;
  }
  CHORAL_CHECK(false, "an expert has three matrices, or two");
  return {};
}

bool is_gemma4(const Json& config) { return config.at("model_type") == "gemma4_text"; }
bool is_gemma(const Json& config) {
  return !is_gemma4(config) && config.at("model_type").get<std::string>().starts_with("gemma");
}
bool has_mamba2(const Json& config) { return config.at("model_type") == "granitemoehybrid"; }
bool has_delta_nets(const Json& config) { return config.contains("linear_num_key_heads"); }

std::string gguf_name(std::string name, const Json& config) {
  for (const auto& [hf, gguf] : {std::pair("model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight"),
                                 std::pair("model.per_layer_model_projection.weight", "per_layer_model_proj.weight"),
                                 std::pair("model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight")}) {
    if (name == hf) return gguf;
  }
  Names names = family_names(config);
  constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kNames{{{"model.layers.", "blk."},
                                                                                  {"model.embed_tokens", "token_embd"},
                                                                                  {"model.norm", "output_norm"},
                                                                                  {"lm_head", "output"},
                                                                                  {"input_layernorm", "attn_norm"},
                                                                                  {"post_attention_layernorm", "ffn_norm"},
                                                                                  {"self_attn.q_norm", "attn_q_norm"},
                                                                                  {"self_attn.k_norm", "attn_k_norm"},
                                                                                  {"self_attn.q_proj", "attn_q"},
                                                                                  {"self_attn.k_proj", "attn_k"},
                                                                                  {"self_attn.v_proj", "attn_v"},
                                                                                  {"self_attn.o_proj", "attn_output"},
                                                                                  {"mlp.", "ffn_"},
                                                                                  {"_proj", ""}}};
  names.insert(names.end(), kNames.begin(), kNames.end());
  for (const auto& [hf, gguf] : names) {
    if (const size_t at = name.find(hf); at != name.npos) name.replace(at, hf.size(), gguf);
  }
  return name;
}

std::string architecture_name(const Json& config) {
  // Mistral's models are "llama" there.
  const std::string type = config.at("model_type");
  if (type == "mistral") return "llama";
  if (type.starts_with("deepseek")) return "deepseek2";
  if (type == "olmo3") return "olmo2";
  if (type == "cohere") return "command-r";
  if (type == "ministral3") return "mistral3";
  if (type == "hunyuan_v1_dense") return "hunyuan-dense";
  if (type == "hunyuan_v1_moe") return "hunyuan-moe";
  if (type == "qwen2_moe") return "qwen2moe";
  if (type == "glm4_moe") return "glm4moe";
  if (type == "granitemoeshared") return "granitemoe";
  if (type == "granitemoehybrid") return "granitehybrid";
  if (type == "ernie4_5_moe") return "ernie4_5-moe";
  if (type == "minimax_m2") return "minimax-m2";
  if (type == "llama4_text") return "llama4";
  if (type.starts_with("qwen3_5")) return config.contains("num_experts") ? "qwen35moe" : "qwen35";
  if (type == "qwen3_next") return "qwen3next";
  if (type == "gemma4_text") return "gemma4";
  return type == "gemma3_text" ? "gemma3" : type == "qwen3_moe" ? "qwen3moe" : type == "gpt_oss" ? "gpt-oss" : type;
}

}  // namespace choral::golden
