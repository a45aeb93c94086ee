// What tensors and architectures are called in the GGUF files that tests write.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace choral::golden {

bool is_gemma4(const nlohmann::json& config);
// The ones before, whose norms are written as 1 + w.
bool is_gemma(const nlohmann::json& config);
bool has_mamba2(const nlohmann::json& config);
bool has_delta_nets(const nlohmann::json& config);

// "model.layers.1.mlp.experts.3.up_proj.weight" -> "blk.1.ffn_up_exps.weight"; empty: no expert's.
std::string stacked_name(const std::string& name);
// "model.layers.1.self_attn.q_proj.weight" -> "blk.1.attn_q.weight".
std::string gguf_name(std::string name, const nlohmann::json& config);
std::string architecture_name(const nlohmann::json& config);

}  // namespace choral::golden
