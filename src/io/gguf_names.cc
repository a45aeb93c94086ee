#include "io/gguf_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

namespace choral::io {
namespace {

constexpr std::array<GgufRenaming, 8> kGlobal{{{"token_embd", "model.embed_tokens"},
                                               {"output_norm", "model.norm"},
                                               {"output", "lm_head"},
                                               {"dense_2", "embedding_layers.0.linear"},  // behind EmbeddingGemma's pooling
                                               {"dense_3", "embedding_layers.1.linear"},
                                               {"per_layer_token_embd", "model.embed_tokens_per_layer"},
                                               {"per_layer_model_proj", "model.per_layer_model_projection"},
                                               {"per_layer_proj_norm", "model.per_layer_projection_norm"}}};
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

// "blk.3.attn_q.weight" taken apart: 3, attn_q.weight. None: no layer's.
struct InLayer {
  std::string_view number, name;
};
std::optional<InLayer> in_layer(std::string_view name, std::string_view before) {
  if (!name.starts_with(before)) return std::nullopt;
  name.remove_prefix(before.size());
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos || !is_layer_number(name.substr(0, dot))) return std::nullopt;
  return InLayer{name.substr(0, dot), name.substr(dot + 1)};
}

// "attn_q.weight": attn_q and weight. None: neither a weight nor a bias.
std::optional<std::pair<std::string_view, std::string_view>> stem_and_kind(std::string_view name) {
  const size_t last = name.rfind('.');
  if (last == std::string_view::npos) return std::nullopt;
  const std::string_view kind = name.substr(last + 1);
  if (kind != "weight" && kind != "bias") return std::nullopt;
  return std::pair(name.substr(0, last), kind);
}

// Empty: it has no counterpart.
std::string renamed_tensor(const GgufArchitecture& architecture, std::string_view name, const Direction& way) {
  if (const auto global = stem_and_kind(name)) {
    const auto to = renamed(kGlobal, global->first, way.from, way.to);
    if (!to.empty()) return fmt::format("{}.{}", to, global->second);
  }
  const auto tensor = in_layer(name, way.from_layer);
  if (!tensor) return {};
  if (const auto whole = renamed(architecture.in_layer, tensor->name, way.from, way.to); !whole.empty()) {
    return fmt::format("{}{}.{}", way.to_layer, tensor->number, whole);
  }
  const auto parts = stem_and_kind(tensor->name);
  if (!parts) return {};
  auto to = renamed(architecture.in_layer, parts->first, way.from, way.to);
  if (to.empty()) to = renamed(kInLayer, parts->first, way.from, way.to);
  if (to.empty()) return {};
  return fmt::format("{}{}.{}.{}", way.to_layer, tensor->number, to, parts->second);
}

}  // namespace

std::string hf_tensor_name(const GgufArchitecture& architecture, std::string_view gguf_name) {
  auto name = renamed_tensor(architecture, gguf_name, kToHf);
  return name.empty() ? std::string(gguf_name) : name;
}

std::string gguf_tensor_name(const GgufArchitecture& architecture, std::string_view hf_name) {
  return renamed_tensor(architecture, hf_name, kToGguf);
}

namespace {

GgufJointNames names_of(const GgufJoint& joint, std::string_view number, std::string_view kind) {
  const auto name = [&](std::string_view before, std::string_view stem) {
    return fmt::format("{}{}.{}.{}", before, number, stem, kind);
  };
  return {&joint, name(kToHf.to_layer, joint.hf), name(kToHf.from_layer, joint.first), name(kToHf.from_layer, joint.second)};
}

}  // namespace

std::optional<GgufJointNames> gguf_joint_names(const GgufArchitecture& architecture, std::string_view gguf_name) {
  const auto tensor = in_layer(gguf_name, kToHf.from_layer);
  const auto parts = tensor ? stem_and_kind(tensor->name) : std::nullopt;
  if (!parts) return std::nullopt;
  for (const GgufJoint& joint : architecture.joints) {
    if (parts->first == joint.first || parts->first == joint.second) return names_of(joint, tensor->number, parts->second);
  }
  return std::nullopt;
}

std::optional<GgufJointNames> gguf_joint_of(const GgufArchitecture& architecture, std::string_view hf_name) {
  const auto tensor = in_layer(hf_name, kToHf.to_layer);
  const auto parts = tensor ? stem_and_kind(tensor->name) : std::nullopt;
  if (!parts) return std::nullopt;
  for (const GgufJoint& joint : architecture.joints) {
    if (parts->first == joint.hf) return names_of(joint, tensor->number, parts->second);
  }
  return std::nullopt;
}

std::optional<std::pair<std::string, std::string>> gguf_halves(const GgufArchitecture& architecture, std::string_view gguf_name) {
  const auto tensor = in_layer(gguf_name, kToHf.from_layer);
  if (!tensor || tensor->name != "ffn_gate_up_exps.weight") return std::nullopt;
  if (!renamed_tensor(architecture, gguf_name, kToHf).empty()) return std::nullopt;
  const auto half = [&](std::string_view stem) {
    return renamed_tensor(architecture, fmt::format("{}{}.{}.weight", kToHf.from_layer, tensor->number, stem), kToHf);
  };
  auto gate = half("ffn_gate_exps"), up = half("ffn_up_exps");
  if (gate.empty() || up.empty()) return std::nullopt;
  return std::pair(std::move(gate), std::move(up));
}

float gguf_added(const GgufArchitecture& architecture, std::string_view hf_name) {
  const bool one = hf_name.ends_with("norm.weight") && !hf_name.ends_with(".linear_attn.norm.weight");
  return architecture.norms_hold_one && one ? 1.0F : 0.0F;
}

std::vector<int32_t> tiled_heads_order(int64_t rows, int64_t key_heads, int64_t value_heads, int64_t dim) {
  std::vector<int32_t> order(rows);
  std::iota(order.begin(), order.end(), 0);
  const int64_t first = rows - value_heads * dim, of_key = value_heads / key_heads;
  for (int64_t head = 0; head < value_heads; ++head) {
    const int64_t in_file = head % of_key * key_heads + head / of_key;
    for (int64_t i = 0; i < dim; ++i) order[first + head * dim + i] = static_cast<int32_t>(first + in_file * dim + i);
  }
  return order;
}

bool is_one_row_in_gguf(std::string_view hf_name) {
  return hf_name.ends_with(".shared_expert_gate.weight") || hf_name.ends_with(".moe_statics.e_score_correction_bias");
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
