// GGUF metadata -> the configuration in Hugging Face words.
#include <algorithm>
#include <cstdlib>

#include "io/gguf_translation.h"
#include "io/model_config.h"

namespace choral::io {
namespace {

// `from` is GGUF's name, `to` Hugging Face's; absent ones stay absent.
Status copy_id(const ConfigMap& metadata, std::string_view from, std::string_view to, ConfigObject& out) {
  if (!metadata.contains(from)) return {};
  CHORAL_TRY(const int64_t id, metadata.get_int(from, kNotNegative));
  out.set(to, id);
  return {};
}

Status copy_ids(const ConfigMap& metadata, ConfigObject& out) {
  CHORAL_RETURN_IF_ERROR(copy_id(metadata, "tokenizer.ggml.bos_token_id", "bos_token_id", out));
  CHORAL_RETURN_IF_ERROR(copy_id(metadata, "tokenizer.ggml.eos_token_id", "eos_token_id", out));
  return copy_id(metadata, "tokenizer.ggml.padding_token_id", "pad_token_id", out);
}

}  // namespace

double as_written(double value) {
  const auto narrow = static_cast<float>(value);
  if (static_cast<double>(narrow) != value) return value;
  return std::strtod(fmt::format("{}", narrow).c_str(), nullptr);
}

Status GgufTranslation::copy_double(std::string_view gguf, std::string_view hf, ConfigObject& out) const {
  if (!has(gguf)) return {};
  CHORAL_TRY(const double value, metadata().get_double(key(gguf)));
  out.set(hf, as_written(value));
  return {};
}

Status GgufTranslation::sizes() {
  const bool by_layer = architecture_.name == "gemma4";  // its layers differ in heads and in the width of their MLP
  for (const auto& size : kGgufSizes) {
    if (architecture_.experts && size.hf == "intermediate_size" && !has(size.gguf)) continue;  // no layer has an MLP
    if (by_layer && size.hf == "intermediate_size") continue;
    CHORAL_TRY(const int64_t value, count(size.gguf));
    out_.set(size.hf, value);
  }
  CHORAL_TRY(const int64_t vocab_size, vocabulary());
  out_.set("vocab_size", vocab_size);
  if (by_layer) {
    CHORAL_TRY(head_dim_, count("attention.key_length"));
    return {};
  }
  return architecture_.latent ? latent_heads() : heads(*out_.find("hidden_size")->as_int());
}

Status GgufTranslation::heads(int64_t hidden_size) {
  CHORAL_TRY(const int64_t heads, count("attention.head_count"));
  CHORAL_TRY(const int64_t kv_heads, gguf_key_heads(metadata(), architecture_, heads));
  CHORAL_TRY(head_dim_, count_or("attention.key_length", std::max<int64_t>(hidden_size / heads, 1)));
  CHORAL_TRY(const int64_t rotary, count_or("rope.dimension_count", head_dim_));
  CHORAL_TRY(const int64_t value_dim, count_or("attention.value_length", head_dim_));
  if (value_dim != head_dim_) {
    return unsupported("{}: keys of {} and values of {} per head are not supported", metadata().source(), head_dim_, value_dim);
  }
  if (rotary > head_dim_) {
    return corrupt("{} is {}, more than the {} of a head", metadata().path_of(key("rope.dimension_count")), rotary, head_dim_);
  }
  out_.set("num_attention_heads", heads);
  out_.set("num_key_value_heads", kv_heads);
  out_.set("head_dim", head_dim_);
  if (rotary != head_dim_) out_.set("partial_rotary_factor", static_cast<double>(rotary) / static_cast<double>(head_dim_));
  return {};
}

// The embedding's rows decide: padded vocabularies have more rows than the tokenizer has tokens.
Result<int64_t> GgufTranslation::vocabulary() const {
  if (file_.contains("token_embd.weight")) {
    CHORAL_TRY(const TensorView embedding, file_.find("token_embd.weight"));
    return embedding.rows();
  }
  if (has("vocab_size")) return count("vocab_size");
  const ConfigValue* tokens = metadata().find("tokenizer.ggml.tokens");
  if (tokens != nullptr && tokens->if_array() != nullptr) return static_cast<int64_t>(tokens->if_array()->size());
  return corrupt("{}: neither token_embd.weight nor {} nor tokenizer.ggml.tokens gives the size of the vocabulary",
                 metadata().source(), key("vocab_size"));
}

// A layer without a router is dense.
Status GgufTranslation::experts() {
  CHORAL_TRY(const int64_t experts, count("expert_count"));
  CHORAL_TRY(const int64_t used, count("expert_used_count"));
  out_.set("num_experts", experts);
  out_.set("num_experts_per_tok", used);
  if (has("expert_feed_forward_length")) {
    CHORAL_TRY(const int64_t intermediate, count("expert_feed_forward_length"));
    out_.set("moe_intermediate_size", intermediate);
  }
  out_.set("norm_topk_prob", true);  // of every reader of these files
  CHORAL_TRY(const int64_t layers, metadata().get_int(key("block_count"), {1, 4096}));
  ConfigArray dense;
  for (int64_t i = 0; i < layers; ++i) {
    if (!file_.contains(fmt::format("blk.{}.ffn_gate_inp.weight", i))) dense.push_back(i);
  }
  out_.set("mlp_only_layers", std::move(dense));
  return {};
}

Result<ConfigMap> GgufTranslation::model_config() {
  out_.set("architectures", ConfigArray{std::string(architecture_.hf_class)});
  out_.set("model_type", std::string(architecture_.model_type));
  out_.set("hidden_act", "silu");
  CHORAL_RETURN_IF_ERROR(sizes());
  CHORAL_RETURN_IF_ERROR(rope());
  if (architecture_.experts) CHORAL_RETURN_IF_ERROR(experts());
  CHORAL_RETURN_IF_ERROR(family());
  CHORAL_RETURN_IF_ERROR(copy_ids(metadata(), out_));
  out_.set("tie_word_embeddings", !file_.contains("output.weight"));
  out_.set("attention_bias", file_.contains("blk.0.attn_q.bias"));
  out_.set("mlp_bias", file_.contains("blk.0.ffn_gate.bias"));
  if (const ConfigValue* pooling = metadata().find(key("pooling_type"))) out_.set("pooling_type", *pooling);
  if (has("attention.causal")) {
    CHORAL_TRY(const bool causal, metadata().get_bool(key("attention.causal")));
    out_.set("is_causal", causal);
  }
  // Said of the model, not asked of it: a name that is no text is none.
  if (auto name = metadata().get_string_or("general.name", ""); name.ok() && !name->empty()) {
    out_.set("_name_or_path", std::move(*name));
  }
  return ConfigMap(std::move(out_), metadata().source());
}

Result<ConfigMap> model_config_from_gguf(const GgufFile& file) {
  CHORAL_TRY(const GgufArchitecture architecture, gguf_architecture(file));
  return GgufTranslation(file, architecture).model_config();
}

Result<ConfigMap> generation_config_from_gguf(const GgufFile& file) {
  ConfigObject out;
  CHORAL_RETURN_IF_ERROR(copy_ids(file.metadata(), out));
  for (const auto& name : kGgufSampling) {
    if (const ConfigValue* value = file.metadata().find(name.gguf)) out.set(name.hf, *value);
  }
  // A chat model ends its turn with a token of its own beside the end of the text, or a message before a tool's answer.
  const ConfigMap& metadata = file.metadata();
  for (const std::string_view key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    if (!metadata.contains(key)) continue;
    CHORAL_TRY(const int64_t end_of_turn, metadata.get_int(key, kNotNegative));
    const ConfigValue* end = out.find("eos_token_id");
    ConfigArray ends;
    if (end != nullptr && end->if_array() != nullptr)
      ends = *end->if_array();
    else if (end != nullptr)
      ends.push_back(*end);
    const bool known = std::any_of(ends.begin(), ends.end(), [&](const ConfigValue& id) { return id.as_int() == end_of_turn; });
    if (!known) ends.push_back(end_of_turn);
    out.set("eos_token_id", std::move(ends));
  }
  return ConfigMap(std::move(out), metadata.source());
}

}  // namespace choral::io
