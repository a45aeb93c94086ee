#include "golden/gguf_writer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "base/check.h"
#include "io/gguf_types.h"
#include "io/test_files.h"

namespace choral::golden {
namespace {

using io::testing::GgufSpec;
using Json = nlohmann::json;

// A matrix or vector as it lies in a file.
struct Stored {
  std::vector<int64_t> shape;
  DType type = DType::kF32;
  std::string bytes;

  size_t row_size() const { return bytes.size() / static_cast<size_t>(shape[0]); }
};

bool is_gemma(const Json& config) { return config.at("model_type").get<std::string>().starts_with("gemma"); }

// "model.layers.1.mlp.experts.3.up_proj.weight" -> "blk.1.ffn_up_exps.weight"; empty: no expert's.
std::string stacked_name(const std::string& name) {
  const size_t at = name.find(".experts.");
  if (at == name.npos) return {};
  const std::string layer = name.substr(13, name.find('.', 13) - 13);
  for (const auto& [hf, gguf] : {std::pair("gate_proj", "gate"), std::pair("up_proj", "up"), std::pair("down_proj", "down")}) {
    if (name.find(hf, at) != name.npos) return "blk." + layer + ".ffn_" + gguf + "_exps.weight";
  }
  CHORAL_CHECK(false, "an expert has three matrices");
  return {};
}

std::string gguf_name(std::string name, const Json& config) {
  constexpr std::string_view kRouter = "mlp.gate.";
  if (const size_t at = name.find(kRouter); at != name.npos) name.replace(at, kRouter.size(), "ffn_gate_inp.");
  if (is_gemma(config)) {
    for (const auto& [hf, gguf] :
         {std::pair("post_attention_layernorm", "post_attention_norm"), std::pair("pre_feedforward_layernorm", "ffn_norm"),
          std::pair("post_feedforward_layernorm", "post_ffw_norm")}) {
      if (const size_t at = name.find(hf); at != name.npos) name.replace(at, std::strlen(hf), gguf);
    }
  }
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
  for (const auto& [hf, gguf] : kNames) {
    if (const size_t at = name.find(hf); at != name.npos) name.replace(at, hf.size(), gguf);
  }
  return name;
}

std::string architecture_name(const Json& config) {
  // Mistral's models are "llama" there.
  const std::string type = config.at("model_type");
  if (type == "mistral") return "llama";
  return type == "gemma3_text" ? "gemma3" : type == "qwen3_moe" ? "qwen3moe" : type;
}

// numpy: rows.reshape(heads, 2, rows // heads // 2).swapaxes(1, 2)
Stored permuted(const Stored& from, size_t heads) {
  Stored to = from;
  const size_t size = from.row_size(), half = static_cast<size_t>(from.shape[0]) / heads / 2;
  size_t row = 0;
  for (size_t head = 0; head < heads; ++head) {
    for (size_t j = 0; j < half; ++j) {
      for (size_t side = 0; side < 2; ++side, ++row) {
        std::memcpy(to.bytes.data() + row * size, from.bytes.data() + ((head * 2 + side) * half + j) * size, size);
      }
    }
  }
  return to;
}

// `name` is Hugging Face's; only what has the rows of q_proj's or k_proj's output is permuted.
Stored in_gguf_order(const std::string& name, Stored tensor, const Json& config) {
  if (architecture_name(config) != "llama") return tensor;
  if (name.find("q_proj.") != name.npos) return permuted(tensor, config.at("num_attention_heads").get<size_t>());
  if (name.find("k_proj.") != name.npos) return permuted(tensor, config.at("num_key_value_heads").get<size_t>());
  return tensor;
}

// Gemma's norms are written as 1 + w.
Stored with_one(const std::string& name, Stored tensor, const Json& config) {
  if (!is_gemma(config) || !name.ends_with("norm.weight")) return tensor;
  CHORAL_CHECK(tensor.type == DType::kF32, "norms of the tests are float32");
  for (size_t at = 0; at < tensor.bytes.size(); at += sizeof(float)) {
    float w;
    std::memcpy(&w, tensor.bytes.data() + at, sizeof w);
    w += 1;
    std::memcpy(tensor.bytes.data() + at, &w, sizeof w);
  }
  return tensor;
}

Stored turned_round(const Stored& from) {
  Stored to{{from.shape[1], from.shape[0]}, from.type, std::string(from.bytes.size(), '\0')};
  const auto rows = static_cast<size_t>(from.shape[0]), cols = static_cast<size_t>(from.shape[1]);
  const size_t width = from.row_size() / cols;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < cols; ++c) {
      std::memcpy(to.bytes.data() + (c * rows + r) * width, from.bytes.data() + (r * cols + c) * width, width);
    }
  }
  return to;
}

void add(GgufSpec& spec, std::string name, const Stored& tensor) {
  std::vector<uint64_t> dims(tensor.shape.rbegin(), tensor.shape.rend());
  spec.tensors.push_back({std::move(name), std::move(dims), io::ggml_from_dtype(tensor.type), tensor.bytes});
}

}  // namespace

std::string gguf_model(const WeightSet& weights, const Json& config) {
  const std::string architecture = architecture_name(config);
  const auto key = [&](const char* name) { return architecture + "." + name; };
  const auto count = [&](const char* name) { return config.at(name).get<uint32_t>(); };
  GgufSpec spec;
  spec.metadata = {GgufSpec::kv_string("general.architecture", architecture),
                   GgufSpec::kv_u32(key("embedding_length"), count("hidden_size")),
                   GgufSpec::kv_u32(key("feed_forward_length"), count("intermediate_size")),
                   GgufSpec::kv_u32(key("block_count"), count("num_hidden_layers")),
                   GgufSpec::kv_u32(key("context_length"), count("max_position_embeddings")),
                   GgufSpec::kv_u32(key("attention.head_count"), count("num_attention_heads")),
                   GgufSpec::kv_u32(key("attention.head_count_kv"), count("num_key_value_heads")),
                   GgufSpec::kv_u32(key("attention.key_length"), count("head_dim")),
                   GgufSpec::kv_u32(key("attention.value_length"), count("head_dim")),
                   GgufSpec::kv_u32(key("rope.dimension_count"), count("head_dim")),
                   GgufSpec::kv_f32(key("rope.freq_base"), config.at("rope_theta").get<float>()),
                   GgufSpec::kv_f32(key("attention.layer_norm_rms_epsilon"), config.at("rms_norm_eps").get<float>())};
  if (is_gemma(config)) {
    spec.metadata.push_back(GgufSpec::kv_u32(key("attention.sliding_window"), count("sliding_window")));
    for (const char* cap : {"attn_logit_softcapping", "final_logit_softcapping"}) {
      if (!config.at(cap).is_null()) spec.metadata.push_back(GgufSpec::kv_f32(key(cap), config.at(cap).get<float>()));
    }
  }
  if (config.contains("num_experts_per_tok")) {
    spec.metadata.push_back(GgufSpec::kv_u32(key("expert_count"), count("num_experts")));
    spec.metadata.push_back(GgufSpec::kv_u32(key("expert_used_count"), count("num_experts_per_tok")));
    spec.metadata.push_back(GgufSpec::kv_u32(key("expert_feed_forward_length"), count("moe_intermediate_size")));
  }
  std::map<std::string, Stored> stacked;  // by name: of less than ten experts
  for (const auto& [name, matrix] : weights) {
    const Stored tensor{matrix.shape, DType::kF32,
                        std::string(reinterpret_cast<const char*>(matrix.values.data()), matrix.values.size() * sizeof(float))};
    const std::string stack = stacked_name(name);
    if (stack.empty()) {
      add(spec, gguf_name(name, config), with_one(name, in_gguf_order(name, tensor, config), config));
      continue;
    }
    auto& all = stacked.try_emplace(stack, Stored{{0, tensor.shape[0], tensor.shape[1]}, DType::kF32, {}}).first->second;
    ++all.shape[0];
    all.bytes += tensor.bytes;
  }
  for (const auto& [name, tensor] : stacked) add(spec, name, tensor);
  return spec.build();
}

std::string gguf_adapter(const lora::AdapterFile& adapter, double alpha, const Json& config) {
  GgufSpec spec;
  spec.metadata = {GgufSpec::kv_string("general.architecture", architecture_name(config)),
                   GgufSpec::kv_string("general.type", "adapter"), GgufSpec::kv_string("adapter.type", "lora"),
                   GgufSpec::kv_f32("adapter.lora.alpha", static_cast<float>(alpha))};
  for (const auto& [name, tensor] : adapter.tensors) {
    const TensorView& view = tensor.view;
    CHORAL_CHECK(name.starts_with("base_model.model."), "PEFT's names begin so");
    std::string hf = name.substr(17);
    std::string ending;
    for (const auto& [peft, gguf] : {std::pair(".lora_A.weight", ".lora_a"), std::pair(".lora_B.weight", ".lora_b"),
                                     std::pair(".lora_embedding_A", ".lora_a"), std::pair(".lora_embedding_B", ".lora_b")}) {
      const size_t at = hf.find(peft);
      if (at == hf.npos) continue;
      hf.replace(at, std::string::npos, ".weight");
      ending = gguf;
    }
    CHORAL_CHECK(!ending.empty() || hf.ends_with("norm.weight"), "llama.cpp writes pairs and norms only");
    Stored stored{{view.shape.dims().begin(), view.shape.dims().end()},
                  view.dtype,
                  std::string(reinterpret_cast<const char*>(view.data), view.size_bytes())};
    if (ending == ".lora_b") stored = in_gguf_order(hf, std::move(stored), config);
    if (name.ends_with(".lora_embedding_A")) stored = turned_round(stored);
    add(spec, gguf_name(hf, config) + ending, with_one(hf, std::move(stored), config));
  }
  return spec.build();
}

}  // namespace choral::golden
