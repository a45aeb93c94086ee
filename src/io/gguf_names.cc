#include "io/gguf_names.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/printable.h"

namespace choral::io {
namespace {

constexpr std::array<GgufRenaming, 3> kFourNorms{{{"post_attention_norm", "post_attention_layernorm"},
                                                  {"ffn_norm", "pre_feedforward_layernorm"},
                                                  {"post_ffw_norm", "post_feedforward_layernorm"}}};
constexpr std::array<GgufRenaming, 4> kExperts{{{"ffn_gate_inp", "mlp.gate"},
                                                {"ffn_gate_exps", "mlp.experts.*.gate_proj"},
                                                {"ffn_up_exps", "mlp.experts.*.up_proj"},
                                                {"ffn_down_exps", "mlp.experts.*.down_proj"}}};
constexpr std::array<GgufRenaming, 4> kExpertsOfMixtral{{{"ffn_gate_inp", "block_sparse_moe.gate"},
                                                         {"ffn_gate_exps", "block_sparse_moe.experts.*.w1"},
                                                         {"ffn_up_exps", "block_sparse_moe.experts.*.w3"},
                                                         {"ffn_down_exps", "block_sparse_moe.experts.*.w2"}}};
constexpr std::array<GgufArchitecture, 8> kArchitectures{{
    {.name = "gemma2", .hf_class = "Gemma2ForCausalLM", .model_type = "gemma2", .norms_hold_one = true, .in_layer = kFourNorms},
    {.name = "gemma3",
     .hf_class = "Gemma3ForCausalLM",
     .model_type = "gemma3_text",
     .norms_hold_one = true,
     .in_layer = kFourNorms},
    {.name = "llama", .hf_class = "LlamaForCausalLM", .model_type = "llama", .interleaved_qk = true},
    {.name = "llama",
     .hf_class = "MixtralForCausalLM",
     .model_type = "mixtral",
     .interleaved_qk = true,
     .experts = true,
     .in_layer = kExpertsOfMixtral},
    {.name = "mistral", .hf_class = "MistralForCausalLM", .model_type = "mistral", .interleaved_qk = true},
    {.name = "qwen2", .hf_class = "Qwen2ForCausalLM", .model_type = "qwen2"},
    {.name = "qwen3", .hf_class = "Qwen3ForCausalLM", .model_type = "qwen3"},
    {.name = "qwen3moe", .hf_class = "Qwen3MoeForCausalLM", .model_type = "qwen3_moe", .experts = true, .in_layer = kExperts},
}};

constexpr std::array<GgufRenaming, 3> kGlobal{
    {{"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}}};
constexpr std::array<GgufRenaming, 11> kInLayer{{{"attn_norm", "input_layernorm"},
                                                 {"ffn_norm", "post_attention_layernorm"},
                                                 {"attn_q", "self_attn.q_proj"},
                                                 {"attn_k", "self_attn.k_proj"},
                                                 {"attn_v", "self_attn.v_proj"},
                                                 {"attn_output", "self_attn.o_proj"},
                                                 {"attn_q_norm", "self_attn.q_norm"},
                                                 {"attn_k_norm", "self_attn.k_norm"},
                                                 {"ffn_gate", "mlp.gate_proj"},
                                                 {"ffn_up", "mlp.up_proj"},
                                                 {"ffn_down", "mlp.down_proj"}}};

std::string_view renamed(std::span<const GgufRenaming> table, std::string_view name, std::string_view GgufRenaming::*from,
                         std::string_view GgufRenaming::*to) {
  for (const auto& entry : table) {
    if (entry.*from == name) return entry.*to;
  }
  return {};
}

// One direction of the names.
struct Direction {
  std::string_view GgufRenaming::*from;
  std::string_view GgufRenaming::*to;
  std::string_view from_layer, to_layer;  // what stands before a layer's number
};
constexpr Direction kToHf{&GgufRenaming::gguf, &GgufRenaming::hf, "blk.", "model.layers."};
constexpr Direction kToGguf{&GgufRenaming::hf, &GgufRenaming::gguf, "model.layers.", "blk."};

bool is_layer_number(std::string_view text) {
  return !text.empty() && text.size() <= 6 && (text.size() == 1 || text[0] != '0') &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Empty: it has no counterpart.
std::string renamed_tensor(const GgufArchitecture& architecture, std::string_view name, const Direction& way) {
  const size_t last = name.rfind('.');
  if (last == std::string_view::npos) return {};
  const std::string_view kind = name.substr(last + 1);
  std::string_view stem = name.substr(0, last);
  if (kind != "weight" && kind != "bias") return {};
  if (const auto to = renamed(kGlobal, stem, way.from, way.to); !to.empty()) return fmt::format("{}.{}", to, kind);
  if (!stem.starts_with(way.from_layer)) return {};
  stem.remove_prefix(way.from_layer.size());
  const size_t dot = stem.find('.');
  if (dot == std::string_view::npos || !is_layer_number(stem.substr(0, dot))) return {};
  auto to = renamed(architecture.in_layer, stem.substr(dot + 1), way.from, way.to);
  if (to.empty()) to = renamed(kInLayer, stem.substr(dot + 1), way.from, way.to);
  if (to.empty()) return {};
  return fmt::format("{}{}.{}.{}", way.to_layer, stem.substr(0, dot), to, kind);
}

}  // namespace

Result<GgufArchitecture> gguf_architecture(const GgufFile& file) {
  const ConfigMap& metadata = file.metadata();
  CHORAL_TRY(const std::string name, metadata.get_string("general.architecture"));
  CHORAL_TRY(const int64_t parts, metadata.get_int_or("split.count", 1));
  if (parts > 1) {
    return unsupported("{} is one of {} parts; merge them into one GGUF file first", metadata.source(), parts);
  }
  CHORAL_TRY(const int64_t experts, metadata.get_int_or(name + ".expert_count", 0));
  std::vector<std::string_view> known;
  const GgufArchitecture* found = nullptr;  // an adapter's file says no more than the name
  for (const auto& architecture : kArchitectures) {
    if (known.empty() || known.back() != architecture.name) known.push_back(architecture.name);
    if (architecture.name != name) continue;
    if (found == nullptr || architecture.experts == (experts > 0)) found = &architecture;
  }
  if (found != nullptr && metadata.contains(name + ".expert_count") && found->experts != (experts > 0)) {
    return unsupported("{}.expert_count is {}; of {} only files with{} are read; use the safetensors files",
                       metadata.path_of(name), experts, name, found->experts ? "" : "out experts");
  }
  if (found != nullptr) return *found;
  return unsupported("{}: the GGUF architecture '{}' is not supported ({} are); use the safetensors files", metadata.source(),
                     printable(name), fmt::join(known, ", "));
}

std::optional<GgufArchitecture> gguf_architecture_of(std::string_view hf_class) {
  for (const auto& architecture : kArchitectures) {
    if (architecture.hf_class == hf_class) return architecture;
  }
  return std::nullopt;
}

bool is_gguf_architecture_of(std::string_view name, std::string_view hf_class) {
  const auto of_file = std::find_if(kArchitectures.begin(), kArchitectures.end(), [&](const auto& a) { return a.name == name; });
  const auto of_model =
      std::find_if(kArchitectures.begin(), kArchitectures.end(), [&](const auto& a) { return a.hf_class == hf_class; });
  if (of_file == kArchitectures.end() || of_model == kArchitectures.end()) return false;
  return of_file == of_model || (of_file->interleaved_qk && of_model->interleaved_qk);  // only the llama family interleaves
}

std::string hf_tensor_name(const GgufArchitecture& architecture, std::string_view gguf_name) {
  auto name = renamed_tensor(architecture, gguf_name, kToHf);
  return name.empty() ? std::string(gguf_name) : name;
}

std::string gguf_tensor_name(const GgufArchitecture& architecture, std::string_view hf_name) {
  return renamed_tensor(architecture, hf_name, kToGguf);
}

float gguf_added(const GgufArchitecture& architecture, std::string_view hf_name) {
  return architecture.norms_hold_one && hf_name.ends_with("norm.weight") ? 1.0F : 0.0F;
}

std::vector<int32_t> half_split_order(int64_t rows, int64_t heads) {
  const int64_t half = rows / heads / 2;
  std::vector<int32_t> order(rows);
  for (int64_t head = 0, i = 0; head < heads; ++head) {
    for (int64_t side = 0; side < 2; ++side) {
      for (int64_t j = 0; j < half; ++j) order[i++] = static_cast<int32_t>(head * 2 * half + 2 * j + side);
    }
  }
  return order;
}

}  // namespace choral::io
