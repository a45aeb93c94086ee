// For tests only: a small model's targets, and adapters for it built tensor by tensor, right or wrong in any single place.
// Header-only.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/float16.h"
#include "io/test_files.h"
#include "lora/peft/lora_model.h"
#include "lora/peft/peft_helper.h"
#include "lora/target.h"
#include "support/temp_dir.h"

namespace choral::lora::testing {

inline constexpr int64_t kHidden = 8, kKeys = 4, kInner = 12, kVocabulary = 10, kLayers = 2;

inline LoRATarget linear(std::string name, std::vector<TargetMember> members, int64_t in, bool bias = false) {
  LoRATarget target{.kind = TargetKind::kLinear, .name = std::move(name), .members = std::move(members), .in = in};
  static const std::vector<float> kBias(64, 0.5F);
  size_t out = 0;
  for (const auto& member : target.members) out += static_cast<size_t>(member.out);
  if (bias) target.base_bias = [out] { return std::span<const float>(kBias).first(out); };
  return target;
}

inline LoRATarget single(TargetKind kind, const std::string& name, int64_t out, int64_t in) {
  return {.kind = kind, .name = name, .members = {{name, out}}, .in = in};
}

// Two layers of q,k,v | o | gate,up | down with their norms, an embedding and a head; q, k and v have biases.
inline std::vector<LoRATarget> small_targets() {
  std::vector<LoRATarget> out;
  out.push_back(single(TargetKind::kEmbedding, "model.embed_tokens", kVocabulary, kHidden));
  for (int64_t i = 0; i < kLayers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    out.push_back(single(TargetKind::kNorm, layer + "input_layernorm", kHidden, kHidden));
    const std::string attention = layer + "self_attn.", mlp = layer + "mlp.";
    out.push_back(linear(attention + "qkv_proj",
                         {{attention + "q_proj", kHidden}, {attention + "k_proj", kKeys}, {attention + "v_proj", kKeys}}, kHidden,
                         true));
    out.push_back(linear(attention + "o_proj", {{attention + "o_proj", kHidden}}, kHidden));
    out.push_back(linear(mlp + "gate_up_proj", {{mlp + "gate_proj", kInner}, {mlp + "up_proj", kInner}}, kHidden));
    out.push_back(linear(mlp + "down_proj", {{mlp + "down_proj", kHidden}}, kInner));
  }
  out.push_back(single(TargetKind::kNorm, "model.norm", kHidden, kHidden));
  out.push_back(single(TargetKind::kHead, "lm_head", kVocabulary, kHidden));
  return out;
}

struct BuiltTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::string dtype = "F32";  // F32, F16, BF16
  std::vector<float> values;
};

class AdapterBuilder {
 public:
  // Values 0.01, 0.02, … by default, counted from `seed`.
  AdapterBuilder& add(std::string name, std::vector<int64_t> shape, std::string dtype = "F32", int seed = 1) {
    BuiltTensor tensor{std::move(name), std::move(shape), std::move(dtype), {}};
    int64_t count = 1;
    for (const int64_t extent : tensor.shape) count *= extent;
    for (int64_t i = 0; i < count; ++i) tensor.values.push_back(0.01F * static_cast<float>(seed + i));
    tensors.push_back(std::move(tensor));
    return *this;
  }
  // lora_A and lora_B of a module. PEFT's prefix is put before it.
  AdapterBuilder& pair(const std::string& module, int64_t rank, int64_t in, int64_t out, const std::string& dtype = "F32") {
    const std::string name = fmt::format("base_model.model.{}", module);
    return add(name + ".lora_A.weight", {rank, in}, dtype, 1).add(name + ".lora_B.weight", {out, rank}, dtype, 3);
  }
  // q and v of both layers: what most tests start from. Belongs to config().
  AdapterBuilder& query_and_value(int64_t rank = 2) {
    for (int64_t i = 0; i < kLayers; ++i) {
      const std::string layer = fmt::format("model.layers.{}.self_attn.", i);
      pair(layer + "q_proj", rank, kHidden, kHidden).pair(layer + "v_proj", rank, kHidden, kKeys);
    }
    return *this;
  }
  BuiltTensor& at(std::string_view name) {
    for (auto& tensor : tensors) {
      if (tensor.name == name || tensor.name == fmt::format("base_model.model.{}", name)) return tensor;
    }
    CHORAL_CHECK(false, "no such tensor in the test");
    return tensors.front();
  }
  AdapterBuilder& remove(std::string_view name) {
    const std::string full = at(name).name;
    std::erase_if(tensors, [&](const auto& tensor) { return tensor.name == full; });
    return *this;
  }

  static std::string bytes(const BuiltTensor& tensor) {
    std::string out;
    for (const float value : tensor.values) {
      if (tensor.dtype == "F32") out += io::testing::le(value);
      if (tensor.dtype == "F16") out += io::testing::le(to_float16(value).bits);
      if (tensor.dtype == "BF16") out += io::testing::le(to_bfloat16(value).bits);
      if (tensor.dtype == "F64") out += io::testing::le(static_cast<double>(value));
      if (tensor.dtype == "I64") out += io::testing::le(static_cast<int64_t>(value));
    }
    return out;
  }
  std::string safetensors() const {
    std::string json, data;
    for (const auto& tensor : tensors) {
      std::string shape;
      for (const int64_t extent : tensor.shape) shape += fmt::format("{}{}", shape.empty() ? "" : ",", extent);
      const size_t begin = data.size();
      data += bytes(tensor);
      json += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", json.empty() ? "" : ",", tensor.name,
                          tensor.dtype, shape, begin, data.size());
    }
    return io::testing::safetensors_file(fmt::format("{{{}}}", json), data);
  }

  std::vector<BuiltTensor> tensors;
};

// {"r":2,"lora_alpha":4,"target_modules":["q_proj","v_proj"]} with `more` members (",\"use_dora\":true") in it.
inline std::string config_json(std::string_view more = "", std::string_view targets = R"(["q_proj","v_proj"])") {
  return fmt::format(R"({{"peft_type":"LORA","r":2,"lora_alpha":4,"target_modules":{}{}}})", targets, more);
}

inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  CHORAL_CHECK(out.good(), "a test file cannot be written; is the disk full?");
}

// Writes both files into `folder` and reads them as a server does.
inline Result<LoRAModel> load(const std::filesystem::path& folder, const AdapterBuilder& builder, std::string_view config,
                              const LoRALoadOptions& options = {}, const std::vector<LoRATarget>& targets = small_targets()) {
  write_file(folder / "adapter_config.json", config);
  write_file(folder / "adapter_model.safetensors", builder.safetensors());
  CHORAL_TRY(const PEFTHelper peft, PEFTHelper::from_local_dir(folder));
  return LoRAModel::from_local_checkpoint(folder, peft, targets, options);
}

// The same in a folder of its own: what is said against it, or "accepted".
inline std::string refusal(const AdapterBuilder& builder, std::string_view config, const LoRALoadOptions& options = {},
                           const std::vector<LoRATarget>& targets = small_targets()) {
  const choral::testing::TempDir folder;
  auto model = load(folder.path(), builder, config, options, targets);
  return model.ok() ? "accepted" : model.status().message();
}

inline LoRAModel accepted(const AdapterBuilder& builder, std::string_view config, const LoRALoadOptions& options = {},
                          const std::vector<LoRATarget>& targets = small_targets()) {
  const choral::testing::TempDir folder;
  auto model = load(folder.path(), builder, config, options, targets);
  CHORAL_CHECK(model.ok(), model.status().message());
  return std::move(*model);
}

}  // namespace choral::lora::testing
