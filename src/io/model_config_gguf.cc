// GGUF metadata -> the configuration in Hugging Face words.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "io/gguf_names.h"
#include "io/model_config.h"

namespace choral::io {
namespace {

// GGUF stores 1e-5 as a float, which is 9.99999974738e-06 as a double; what was meant is the shortest decimal of that float.
double as_written(double value) {
  const auto narrow = static_cast<float>(value);
  if (static_cast<double>(narrow) != value) return value;
  return std::strtod(fmt::format("{}", narrow).c_str(), nullptr);
}

class Translation {
 public:
  Translation(const GgufFile& file, const GgufArchitecture& architecture) : file_(file), architecture_(architecture) {}

  Result<ConfigMap> model_config();

 private:
  std::string key(std::string_view name) const { return fmt::format("{}.{}", architecture_.name, name); }
  const ConfigMap& metadata() const { return file_.metadata(); }
  Result<int64_t> count(std::string_view name) const { return metadata().get_int(key(name), kPositive); }
  Result<int64_t> count_or(std::string_view name, int64_t absent) const {
    return metadata().get_int_or(key(name), absent, kPositive);
  }
  bool has(std::string_view name) const { return metadata().contains(key(name)); }

  Status sizes();
  Status heads(int64_t hidden_size);
  Result<int64_t> vocabulary() const;
  Status rope();
  Result<ConfigValue> rope_scaling() const;
  Result<ConfigArray> freq_factors() const;
  Status gemma();
  Status experts();

  const GgufFile& file_;
  const GgufArchitecture& architecture_;
  ConfigObject out_;
  int64_t head_dim_ = 0;
};

Status Translation::sizes() {
  for (const auto& size : kGgufSizes) {
    CHORAL_TRY(const int64_t value, count(size.gguf));
    out_.set(size.hf, value);
  }
  CHORAL_TRY(const int64_t vocab_size, vocabulary());
  out_.set("vocab_size", vocab_size);
  return heads(*out_.find("hidden_size")->as_int());
}

Status Translation::heads(int64_t hidden_size) {
  CHORAL_TRY(const int64_t heads, count("attention.head_count"));
  CHORAL_TRY(const int64_t kv_heads, count_or("attention.head_count_kv", heads));
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
Result<int64_t> Translation::vocabulary() const {
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

Result<ConfigArray> Translation::freq_factors() const {
  CHORAL_TRY(const TensorView factors, file_.find("rope_freqs.weight"));
  if (factors.dtype != DType::kF32 || factors.shape.rank() != 1 || factors.cols() > head_dim_) {
    return unsupported("{}: rope_freqs.weight is {} of shape {}; float32 and at most {} numbers are supported",
                       metadata().source(), dtype_name(factors.dtype), factors.shape.to_string(), head_dim_);
  }
  ConfigArray out;
  for (int64_t i = 0; i < factors.cols(); ++i) {
    float factor;
    std::memcpy(&factor, factors.data + i * sizeof(float), sizeof(float));
    if (!std::isfinite(factor) || factor <= 0) return corrupt("{}: rope_freqs.weight[{}] is {}", metadata().source(), i, factor);
    out.push_back(as_written(factor));
  }
  return out;
}

Result<ConfigValue> Translation::rope_scaling() const {
  ConfigObject scaling;
  CHORAL_TRY(const std::string type, metadata().get_string_or(key("rope.scaling.type"), "none"));
  if (file_.contains("rope_freqs.weight")) {
    if (type != "none")
      return unsupported("{}: rope_freqs.weight together with {}", metadata().source(), key("rope.scaling.type"));
    CHORAL_TRY(ConfigArray factors, freq_factors());
    scaling.set("rope_type", "freq_factors");
    scaling.set("freq_factors", std::move(factors));
    return ConfigValue(std::move(scaling));
  }
  if (type == "none") {
    if (!has("rope.scale_linear")) return ConfigValue();  // the older spelling of linear scaling
    CHORAL_TRY(const double factor, metadata().get_double(key("rope.scale_linear")));
    if (factor == 1) return ConfigValue();
    scaling.set("rope_type", "linear");
    scaling.set("factor", as_written(factor));
    return ConfigValue(std::move(scaling));
  }
  if (type != "linear" && type != "yarn") {
    return unsupported("{} is '{}'; linear and yarn are supported", metadata().path_of(key("rope.scaling.type")), type);
  }
  CHORAL_TRY(const double factor, metadata().get_double(key("rope.scaling.factor")));
  scaling.set("rope_type", type);
  scaling.set("factor", as_written(factor));
  if (type == "linear") return ConfigValue(std::move(scaling));
  if (has("rope.scaling.original_context_length")) {
    CHORAL_TRY(const int64_t original, count("rope.scaling.original_context_length"));
    scaling.set("original_max_position_embeddings", original);
  }
  for (const std::string_view name : {"beta_fast", "beta_slow"}) {
    const std::string from = key(fmt::format("rope.scaling.yarn_{}", name));
    if (!metadata().contains(from)) continue;
    CHORAL_TRY(const double value, metadata().get_double(from));
    scaling.set(name, as_written(value));
  }
  return ConfigValue(std::move(scaling));
}

Status Translation::rope() {
  CHORAL_TRY(const double eps, metadata().get_double(key("attention.layer_norm_rms_epsilon"), {0, 1}));
  CHORAL_TRY(const double theta, metadata().get_double_or(key("rope.freq_base"), 10000.0));
  CHORAL_TRY(ConfigValue scaling, rope_scaling());
  CHORAL_TRY(const int64_t window, metadata().get_int_or(key("attention.sliding_window"), 0, kNotNegative));
  out_.set("rms_norm_eps", as_written(eps));
  out_.set("rope_theta", as_written(theta));
  out_.set("rope_scaling", std::move(scaling));
  if (window > 0) out_.set("sliding_window", window);
  if (window > 0 && architecture_.name.starts_with("qwen")) out_.set("use_sliding_window", true);
  return {};
}

// GGUF has no word for the scale of q·k: its readers take 1/sqrt(head_dim), and hidden/heads for head_dim in the largest model.
Status Translation::gemma() {
  constexpr int64_t kLayersOfGemma2Largest = 46, kLayersOfGemma3Largest = 62;
  CHORAL_TRY(const int64_t layers, count("block_count"));
  CHORAL_TRY(const int64_t hidden, count("embedding_length"));
  CHORAL_TRY(const int64_t heads, count("attention.head_count"));
  const bool largest = layers == (architecture_.name == "gemma2" ? kLayersOfGemma2Largest : kLayersOfGemma3Largest);
  out_.set("query_pre_attn_scalar", largest ? hidden / heads : head_dim_);
  out_.set("hidden_activation", "gelu_pytorch_tanh");
  for (const auto& [gguf, hf] : {std::pair("attn_logit_softcapping", "attn_logit_softcapping"),
                                 std::pair("final_logit_softcapping", "final_logit_softcapping"),
                                 std::pair("rope.freq_base_swa", "rope_local_base_freq")}) {
    if (!has(gguf)) continue;
    CHORAL_TRY(const double value, metadata().get_double(key(gguf)));
    out_.set(hf, as_written(value));
  }
  return {};
}

// A layer without a router is dense.
Status Translation::experts() {
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

Result<ConfigMap> Translation::model_config() {
  out_.set("architectures", ConfigArray{std::string(architecture_.hf_class)});
  out_.set("model_type", std::string(architecture_.model_type));
  out_.set("hidden_act", "silu");
  CHORAL_RETURN_IF_ERROR(sizes());
  CHORAL_RETURN_IF_ERROR(rope());
  if (architecture_.name.starts_with("gemma")) CHORAL_RETURN_IF_ERROR(gemma());
  if (architecture_.experts) CHORAL_RETURN_IF_ERROR(experts());
  CHORAL_RETURN_IF_ERROR(copy_ids(metadata(), out_));
  out_.set("tie_word_embeddings", !file_.contains("output.weight"));
  out_.set("attention_bias", file_.contains("blk.0.attn_q.bias"));
  out_.set("mlp_bias", file_.contains("blk.0.ffn_gate.bias"));
  // Said of the model, not asked of it: a name that is no text is none.
  if (auto name = metadata().get_string_or("general.name", ""); name.ok() && !name->empty()) {
    out_.set("_name_or_path", std::move(*name));
  }
  return ConfigMap(std::move(out_), metadata().source());
}

}  // namespace

Result<ConfigMap> model_config_from_gguf(const GgufFile& file) {
  CHORAL_TRY(const GgufArchitecture architecture, gguf_architecture(file));
  return Translation(file, architecture).model_config();
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
