// The first byte picks a configuration, the rest is the adapter's .safetensors file, read for a small model. What is accepted
// must fit that model in every shape, and be the same adapter when read again.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "io/config_map.h"
#include "io/safetensors.h"
#include "lora/peft/lora_model.h"
#include "lora/peft/peft_helper.h"

namespace {

using namespace choral;
using namespace choral::lora;

constexpr std::array<const char*, 6> kConfigs{
    R"({"r":2,"lora_alpha":4,"target_modules":["q_proj","v_proj"]})",
    R"({"r":2,"lora_alpha":4,"target_modules":["qkv_proj"],"use_dora":true})",
    R"({"r":2,"lora_alpha":4,"target_modules":"all-linear","bias":"all"})",
    R"({"r":2,"lora_alpha":4,"target_modules":["embed_tokens","lm_head"]})",
    R"({"r":2,"lora_alpha":4,"target_modules":["q_proj"],"lora_bias":true,"modules_to_save":["norm"]})",
    R"({"r":2,"lora_alpha":4,"target_modules":["q_proj"],"trainable_token_indices":[1,5],"rank_pattern":{"q_proj":1}})"};

std::vector<LoRATarget> model() {
  static const std::vector<float> kBias(16, 0.0F);
  std::vector<LoRATarget> out;
  out.push_back({.kind = TargetKind::kEmbedding, .name = "model.embed_tokens", .members = {{"model.embed_tokens", 6}}, .in = 4});
  out.push_back({.kind = TargetKind::kLinear,
                 .name = "model.layers.0.self_attn.qkv_proj",
                 .members = {{"model.layers.0.self_attn.q_proj", 4}, {"model.layers.0.self_attn.v_proj", 2}},
                 .in = 4,
                 .base_bias = [] { return std::span<const float>(kBias); }});
  out.push_back({.kind = TargetKind::kNorm, .name = "model.norm", .members = {{"model.norm", 4}}, .in = 4});
  out.push_back({.kind = TargetKind::kHead, .name = "lm_head", .members = {{"lm_head", 6}}, .in = 4});
  return out;
}

const LoRATarget& target_of(const std::vector<LoRATarget>& targets, const std::string& module, int64_t& out) {
  for (const auto& target : targets) {
    for (const auto& member : target.members) {
      if (member.name != module) continue;
      out = member.out;
      return target;
    }
  }
  CHORAL_CHECK(false, "a module that the model has not");
  return targets[0];
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  const auto header = io::parse_safetensors(file, "fuzzed");
  if (!header.ok()) return 0;
  std::vector<NamedTensor> tensors;
  for (const auto& entry : header->entries) {
    // What read_adapter_file lets through.
    if (entry.rank > Shape::kMaxRank || entry.begin == entry.end) return 0;
    if (entry.dtype != DType::kF32 && entry.dtype != DType::kF16 && entry.dtype != DType::kBF16) return 0;
    tensors.push_back({entry.name, {{file.data() + header->data_offset + entry.begin, entry.dtype, entry.shape, {}}, nullptr}});
  }
  const auto config = io::ConfigMap::parse_json(kConfigs[data[0] % kConfigs.size()], "config");
  const auto peft = PEFTHelper::from_config(*config);
  CHORAL_CHECK(peft.ok(), "a configuration of this file is wrong");
  const std::vector<LoRATarget> targets = model();
  const auto adapter = LoRAModel::from_lora_tensors(tensors, *peft, targets);
  if (!adapter.ok()) return 0;
  for (const auto& [name, layer] : adapter->loras()) {
    int64_t out = 0;
    const LoRATarget& target = target_of(targets, name, out);
    const int64_t in = layer.is_embedding ? out : target.in, rows = layer.is_embedding ? target.in : out;
    CHORAL_CHECK(layer.lora_a.view.shape == Shape({layer.rank, in}) && layer.lora_b.view.shape == Shape({rows, layer.rank}),
                 "a pair that does not fit its module");
    CHORAL_CHECK(layer.rank == *peft->rank_for(name) && layer.is_dora() == peft->use_dora, "a pair the config does not describe");
  }
  for (const auto& [name, weight] : adapter->replaced_weights()) {
    int64_t out = 0;
    const LoRATarget& target = target_of(targets, name, out);
    CHORAL_CHECK(weight.view.shape.elements() == (target.kind == TargetKind::kNorm ? target.in : out * target.in),
                 "a wrong size");
  }
  for (const auto& tokens : adapter->trainable_tokens()) {
    CHORAL_CHECK(tokens.rows.view.shape == Shape({std::ssize(tokens.token_ids), 4}), "rows without tokens");
  }
  const auto again = LoRAModel::from_lora_tensors(tensors, *peft, targets);
  CHORAL_CHECK(again.ok() && again->digest() == adapter->digest(), "the same tensors are another adapter");
  return 0;
}
