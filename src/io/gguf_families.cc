// What GGUF metadata says of one family alone, and what its files leave to their readers.
#include <cmath>

#include "io/gguf_translation.h"

namespace choral::io {

Status GgufTranslation::family() {
  if (architecture_.name == "gemma4") return gemma4();
  if (architecture_.name.starts_with("gemma")) return gemma();
  if (architecture_.name == "phi3") return phi3();
  if (architecture_.latent) return deepseek();
  if (architecture_.name == "gpt-oss") return gpt_oss();
  if (architecture_.name == "olmoe") return olmoe();
  if (architecture_.hf_class == "Olmo3ForCausalLM") return olmo3();
  if (architecture_.name == "granite") return granite();
  if (architecture_.name == "mistral3") return mistral3();
  if (architecture_.name == "chatglm" || architecture_.name == "glm4") return glm();
  if (architecture_.name == "exaone4") return exaone4();
  if (architecture_.layer_norm) return cohere();
  if (architecture_.name == "ernie4_5") out_.set("use_bias", file_.contains("blk.0.attn_q.bias"));
  if (architecture_.name == "seed_oss") out_.set("attention_out_bias", file_.contains("blk.0.attn_output.bias"));
  if (architecture_.name == "qwen2moe") return qwen2moe();
  if (architecture_.name == "glm4moe") return glm4moe();
  if (architecture_.name == "granitemoe") return granitemoe();
  if (architecture_.name == "granitehybrid") return granitehybrid();
  if (architecture_.name == "ernie4_5-moe") return ernie4_5_moe();
  if (architecture_.name == "hunyuan-moe") return hunyuan_moe();
  if (architecture_.name == "llama4") return llama4();
  if (architecture_.name == "phimoe") return phimoe();
  if (architecture_.delta_nets) return delta_nets();
  return {};
}

// GGUF has no word for the scale of q·k: its readers take 1/sqrt(head_dim), and hidden/heads for head_dim in the largest model.
Status GgufTranslation::gemma() {
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
    CHORAL_RETURN_IF_ERROR(copy_double(gguf, hf, out_));
  }
  if (architecture_.name == "gemma-embedding") embedding_layers();
  return {};
}

// EmbeddingGemma: every token sees all others, and two layers stand behind the pooling, which its tensors alone tell of.
void GgufTranslation::embedding_layers() {
  out_.set("use_bidirectional_attention", true);
  ConfigArray layers;
  for (const std::string_view name : {"dense_2.weight", "dense_3.weight"}) {
    const auto tensor = file_.find(name);
    if (!tensor.ok() || tensor->shape.rank() != 2) continue;
    ConfigObject layer;
    layer.set("in_features", tensor->shape[1]);
    layer.set("out_features", tensor->shape[0]);
    layers.push_back(std::move(layer));
  }
  if (!layers.empty()) out_.set("embedding_layers", std::move(layers));
}

// A number for all layers, or one for each.
Result<std::vector<int64_t>> GgufTranslation::of_layers(std::string_view name, int64_t layers) const {
  CHORAL_TRY(auto numbers, metadata().get_int_or_ints(key(name), kPositive));
  if (numbers.size() == 1) numbers.resize(static_cast<size_t>(layers), numbers.front());
  if (std::ssize(numbers) != layers) {
    return corrupt("{} has {} numbers for {} layers", metadata().path_of(key(name)), numbers.size(), layers);
  }
  return numbers;
}

Result<std::vector<bool>> GgufTranslation::gemma4_windows(int64_t layers) const {
  const std::string name = key("attention.sliding_window_pattern");
  const ConfigValue* pattern = metadata().find(name);
  const ConfigArray* each = pattern == nullptr ? nullptr : pattern->if_array();
  if (each == nullptr || std::ssize(*each) != layers) {
    return corrupt("{}: a list is wanted that says of each of {} layers whether it has a window", metadata().path_of(name),
                   layers);
  }
  std::vector<bool> windows;
  for (const ConfigValue& value : *each) {
    const bool* has = value.if_bool();
    if (has == nullptr) return corrupt("{}: {} is no truth value", metadata().path_of(name), value.to_json());
    windows.push_back(*has);
  }
  return windows;
}

// Layers with a window have heads of their own size. Which of the others take their keys for values shows in what they lack.
Status GgufTranslation::gemma4_heads(const std::vector<bool>& windows) {
  const auto layers = std::ssize(windows);
  CHORAL_TRY(const int64_t heads, count("attention.head_count"));
  CHORAL_TRY(const auto kv_heads, of_layers("attention.head_count_kv", layers));
  CHORAL_TRY(const int64_t windowed, count("attention.key_length_swa"));
  for (const auto& [name, wanted] :
       {std::pair("attention.value_length", head_dim_), std::pair("rope.dimension_count", head_dim_),
        std::pair("attention.value_length_swa", windowed), std::pair("rope.dimension_count_swa", windowed)}) {
    CHORAL_TRY(const int64_t value, count_or(name, wanted));
    if (value != wanted) {
      return unsupported("{} is {}, of keys of {}; they are alike in models of this family", metadata().path_of(key(name)), value,
                         wanted);
    }
  }
  ConfigObject by_layer;
  ConfigArray types;
  int64_t usual = kv_heads.front(), full = 0, without_values = 0;
  for (int64_t i = 0; i < layers; ++i) {
    types.emplace_back(windows[i] ? "sliding_attention" : "full_attention");
    if (windows[i]) {
      usual = kv_heads[i];
      continue;
    }
    ConfigObject own;
    own.set("head_dim", head_dim_);
    own.set("num_key_value_heads", kv_heads[i]);
    by_layer.set(std::to_string(i), std::move(own));
    if (!file_.contains(fmt::format("blk.{}.attn_k.weight", i))) continue;
    full += 1;
    without_values += file_.contains(fmt::format("blk.{}.attn_v.weight", i)) ? 0 : 1;
  }
  if (without_values != 0 && without_values != full) {
    return unsupported("{}: {} of {} layers without a window have no attn_v; all or none is read", metadata().source(),
                       without_values, full);
  }
  out_.set("num_attention_heads", heads);
  out_.set("num_key_value_heads", usual);
  out_.set("head_dim", windowed);
  out_.set("layer_types", std::move(types));
  out_.set("per_layer_config", std::move(by_layer));
  out_.set("attention_k_eq_v", without_values > 0);
  return {};
}

// The layers that share keys may have an MLP of twice the width.
Status GgufTranslation::gemma4_mlp(int64_t layers, int64_t shared) {
  CHORAL_TRY(const auto widths, of_layers("feed_forward_length", layers));
  const bool wide = shared > 0 && widths.back() == 2 * widths.front();
  for (int64_t i = 0; i < layers; ++i) {
    const int64_t wanted = widths.front() * (wide && i >= layers - shared ? 2 : 1);
    if (widths[i] == wanted) continue;
    return unsupported("{}: layer {} has {}; {} is wanted beside the first one's", metadata().path_of(key("feed_forward_length")),
                       i, widths[i], wanted);
  }
  out_.set("intermediate_size", widths.front());
  out_.set("use_double_wide_mlp", wide);
  return {};
}

Status GgufTranslation::gemma4() {
  CHORAL_TRY(const int64_t layers, metadata().get_int(key("block_count"), {1, 4096}));
  CHORAL_TRY(const int64_t shared, metadata().get_int_or(key("attention.shared_kv_layers"), 0, {0, layers - 1}));
  CHORAL_TRY(const int64_t per_layer, metadata().get_int_or(key("embedding_length_per_layer_input"), 0, kNotNegative));
  CHORAL_TRY(const auto windows, gemma4_windows(layers));
  CHORAL_RETURN_IF_ERROR(gemma4_heads(windows));
  CHORAL_RETURN_IF_ERROR(gemma4_mlp(layers, shared));
  out_.set("hidden_activation", "gelu_pytorch_tanh");
  out_.set("num_kv_shared_layers", shared);
  out_.set("hidden_size_per_layer_input", per_layer);
  out_.set("vocab_size_per_layer_input", *out_.find("vocab_size"));
  out_.set("enable_moe_block", architecture_.experts);
  CHORAL_RETURN_IF_ERROR(copy_double("rope.freq_base_swa", "rope_local_base_freq", out_));
  return copy_double("final_logit_softcapping", "final_logit_softcapping", out_);
}

// Files from before the window had a key are of Phi-3's first models: those for 4096 positions have one, the others none that is
// shorter than they are.
Status GgufTranslation::phi3() {
  constexpr int64_t kShortContext = 4096, kWindow = 2047;
  CHORAL_TRY(const int64_t context, count("context_length"));
  if (!has("attention.sliding_window") && context == kShortContext) out_.set("sliding_window", kWindow);
  return {};
}

// Since llama.cpp multiplies queries by the latents themselves, its files give the latent's size as key_length, and a head's own
// under names that end in _mla.
Status GgufTranslation::latent_heads() {
  CHORAL_TRY(const int64_t heads, count("attention.head_count"));
  CHORAL_TRY(const int64_t rope, count("rope.dimension_count"));
  const std::string ending = has("attention.key_length_mla") ? "_mla" : "";
  const std::string keys = "attention.key_length" + ending;
  CHORAL_TRY(const int64_t key_dim, count(keys));
  CHORAL_TRY(const int64_t value_dim, count("attention.value_length" + ending));
  if (rope >= key_dim) {
    return corrupt("{} is {}, of which {} turn with the position ({}); nothing is left", metadata().path_of(key(keys)), key_dim,
                   rope, key("rope.dimension_count"));
  }
  CHORAL_TRY(const int64_t kv_rank, count("attention.kv_lora_rank"));
  CHORAL_TRY(const int64_t q_rank, metadata().get_int_or(key("attention.q_lora_rank"), 0, kNotNegative));
  head_dim_ = rope;
  out_.set("num_attention_heads", heads);
  out_.set("num_key_value_heads", heads);
  out_.set("head_dim", rope);
  out_.set("qk_rope_head_dim", rope);
  out_.set("qk_nope_head_dim", key_dim - rope);
  out_.set("v_head_dim", value_dim);
  out_.set("kv_lora_rank", kv_rank);
  if (q_rank > 0) out_.set("q_lora_rank", q_rank);
  return {};
}

namespace {

struct ExpertGroups {
  int64_t experts, groups, used;
};
// Of the models whose files are older than the keys: V2 and V3.
constexpr ExpertGroups kGroupsOfV2{160, 8, 3}, kGroupsOfV3{256, 8, 4};

}  // namespace

// Experts that every token meets, layers without any, and what is done with the chosen ones' shares.
Status GgufTranslation::shared_experts() {
  CHORAL_TRY(const int64_t shared, metadata().get_int_or(key("expert_shared_count"), 0, kNotNegative));
  CHORAL_TRY(const int64_t dense, metadata().get_int_or(key("leading_dense_block_count"), 0, kNotNegative));
  CHORAL_TRY(const bool normalised, metadata().get_bool_or(key("expert_weights_norm"), false));
  out_.set("n_shared_experts", shared);
  out_.set("first_k_dense_replace", dense);
  out_.set("norm_topk_prob", normalised);
  CHORAL_RETURN_IF_ERROR(copy_double("expert_weights_scale", "routed_scaling_factor", out_));

  // The layers that predict further tokens stand after the model's own.
  CHORAL_TRY(const int64_t layers, count("block_count"));
  CHORAL_TRY(const int64_t predicting, metadata().get_int_or(key("nextn_predict_layers"), 0, {0, layers - 1}));
  out_.set("num_hidden_layers", layers - predicting);
  return {};
}

Status GgufTranslation::deepseek() {
  CHORAL_RETURN_IF_ERROR(shared_experts());
  CHORAL_TRY(const int64_t experts, count("expert_count"));
  const ExpertGroups& old = architecture_.sigmoid_gating ? kGroupsOfV3 : kGroupsOfV2;
  const bool as_old = architecture_.name == "deepseek2" && !has("expert_group_count") && experts == old.experts;
  CHORAL_TRY(const int64_t groups, count_or("expert_group_count", as_old ? old.groups : 1));
  CHORAL_TRY(const int64_t used, count_or("expert_group_used_count", as_old ? old.used : groups));
  out_.set("n_group", groups);
  out_.set("topk_group", used);
  out_.set("topk_method", groups > 1 ? "group_limited_greedy" : "greedy");
  if (architecture_.name == "deepseek32") {
    CHORAL_TRY(const int64_t chosen, count("attention.indexer.top_k"));
    out_.set("index_topk", chosen);
  }
  if (architecture_.name != "mistral4" && has("attention.temperature_scale")) {
    return unsupported("{}: queries that grow with their position are read of mistral3 and mistral4, not of {}",
                       metadata().path_of(key("attention.temperature_scale")), architecture_.name);
  }
  return {};
}

// A file without a scale of q·k means what others mean, where the configuration class means 1.
Status GgufTranslation::granite_multipliers() {
  out_.set("attention_multiplier", 1 / std::sqrt(static_cast<double>(head_dim_)));
  for (const auto& [gguf, hf] :
       {std::pair("attention.scale", "attention_multiplier"), std::pair("embedding_scale", "embedding_multiplier"),
        std::pair("residual_scale", "residual_multiplier"), std::pair("logit_scale", "logits_scaling")}) {
    CHORAL_RETURN_IF_ERROR(copy_double(gguf, hf, out_));
  }
  return {};
}

// Layers without key heads are Mamba-2's. What their steps are limited to no key says: to nothing, in the models there are.
Status GgufTranslation::granitehybrid() {
  CHORAL_TRY(const int64_t layers, metadata().get_int(key("block_count"), {1, 4096}));
  CHORAL_TRY(const auto kv_heads, gguf_kv_heads(metadata(), architecture_.name, layers));
  CHORAL_TRY(const int64_t hidden, count("embedding_length"));
  CHORAL_TRY(const int64_t inner, count("ssm.inner_size"));
  CHORAL_TRY(const int64_t heads, count("ssm.time_step_rank"));
  CHORAL_TRY(const int64_t groups, count("ssm.group_count"));
  CHORAL_TRY(const int64_t state, count("ssm.state_size"));
  CHORAL_TRY(const int64_t taps, count("ssm.conv_kernel"));
  CHORAL_TRY(const bool rotates, metadata().get_bool_or(key("rope.scaling.finetuned"), true));
  CHORAL_TRY(const int64_t dense, count("feed_forward_length"));
  CHORAL_TRY(const int64_t shared, count_or("expert_shared_feed_forward_length", dense));
  if (inner % hidden != 0 || inner % heads != 0) {
    return unsupported("{} is {}; a multiple of {} heads and of embedding_length, {}, is wanted",
                       metadata().path_of(key("ssm.inner_size")), inner, heads, hidden);
  }
  ConfigArray types;
  std::string of_mamba = "blk.0.";
  for (int64_t i = layers; i-- > 0;) {
    if (kv_heads[i] == 0) of_mamba = fmt::format("blk.{}.", i);
  }
  for (const int64_t count : kv_heads) types.emplace_back(count == 0 ? "linear_attention" : "full_attention");
  out_.set("layer_types", std::move(types));
  out_.set("mamba_n_heads", heads);
  out_.set("mamba_d_head", inner / heads);
  out_.set("mamba_n_groups", groups);
  out_.set("mamba_d_state", state);
  out_.set("mamba_d_conv", taps);
  out_.set("mamba_expand", inner / hidden);
  out_.set("mamba_conv_bias", file_.contains(of_mamba + "ssm_conv1d.bias"));
  out_.set("mamba_proj_bias", file_.contains(of_mamba + "ssm_in.bias"));
  out_.set("position_embedding_type", rotates ? "rope" : "nope");
  out_.set("shared_intermediate_size", shared);
  if (!architecture_.experts) out_.set("num_experts", int64_t{0});
  return granite_multipliers();
}

// Which layers have the window: said one by one, or by the period, whose last layer has none. Absent: `period`.
Status GgufTranslation::layer_types(int64_t period) {
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  CHORAL_TRY(const int64_t layers, metadata().get_int(key("block_count"), {1, 4096}));
  const ConfigValue* said = metadata().find(key(kPattern));
  const ConfigArray* each = said == nullptr ? nullptr : said->if_array();
  if (each == nullptr) {
    CHORAL_TRY(period, count_or(kPattern, period));
  } else if (std::ssize(*each) < layers) {
    return corrupt("{} has {} entries for {} layers", metadata().path_of(key(kPattern)), each->size(), layers);
  }
  ConfigArray types;
  for (int64_t i = 0; i < layers; ++i) {
    bool windowed = (i + 1) % period != 0;
    if (each != nullptr) {
      const ConfigValue& value = (*each)[i];
      if (value.if_bool() == nullptr && !value.as_int()) {
        return corrupt("{}[{}] is {}, neither true nor false", metadata().path_of(key(kPattern)), i, value.type_name());
      }
      windowed = value.if_bool() != nullptr ? *value.if_bool() : *value.as_int() != 0;
    }
    types.push_back(windowed ? "sliding_attention" : "full_attention");
  }
  out_.set("layer_types", std::move(types));
  return {};
}

Status GgufTranslation::olmo3() {
  out_.set("rope_local_base_freq", *out_.find("rope_theta"));
  CHORAL_RETURN_IF_ERROR(copy_double("rope.freq_base_swa", "rope_local_base_freq", out_));
  return layer_types(4);
}

// Its models of attention layers alone may turn nothing with the position.
Status GgufTranslation::granite() {
  CHORAL_TRY(const bool rotates, metadata().get_bool_or(key("rope.scaling.finetuned"), true));
  if (!rotates)
    return unsupported("{} is false: Granite without rotation is not implemented",
                       metadata().path_of(key("rope.scaling.finetuned")));
  return granite_multipliers();
}

// Files of Mistral Small 3 have this name too, without what Ministral 3 has.
Status GgufTranslation::mistral3() {
  if (has("attention.temperature_scale")) return {};  // with the rotary scaling
  out_.set("architectures", ConfigArray{"MistralForCausalLM"});
  out_.set("model_type", "mistral");
  if (out_.find("sliding_window") == nullptr) out_.set("sliding_window", ConfigValue());
  return {};
}

Status GgufTranslation::glm() {
  for (const char* name : {"rope.dimension_sections", "nextn_predict_layers"}) {
    if (has(name)) return unsupported("{}: files of GLM-4 that have it are not read", metadata().path_of(key(name)));
  }
  return {};
}

// The largest one's first files say nothing of its windows.
Status GgufTranslation::exaone4() {
  constexpr int64_t kLayersOfLargest = 64, kWindow = 4096;
  CHORAL_TRY(const int64_t layers, count("block_count"));
  if (layers == kLayersOfLargest && out_.find("sliding_window") == nullptr) out_.set("sliding_window", kWindow);
  if (out_.find("sliding_window") != nullptr) return layer_types(4);
  out_.set("sliding_window", ConfigValue());
  return {};
}

Status GgufTranslation::cohere() {
  CHORAL_RETURN_IF_ERROR(copy_double("logit_scale", "logit_scale", out_));
  out_.set("use_qk_norm", file_.contains("blk.0.attn_q_norm.weight"));
  return architecture_.name == "cohere2" ? layer_types(4) : Status();
}

// Qwen3.5. The file's value heads are in tiles (tiled_heads_order), which rows are put back from, but not out_proj's columns:
// these may lie across blocks of a quantised matrix.
Status GgufTranslation::delta_nets() {
  CHORAL_TRY(const int64_t key_heads, count("ssm.group_count"));
  CHORAL_TRY(const int64_t value_heads, count("ssm.time_step_rank"));
  CHORAL_TRY(const int64_t key_dim, count("ssm.state_size"));
  CHORAL_TRY(const int64_t inner, count("ssm.inner_size"));
  CHORAL_TRY(const int64_t taps, count("ssm.conv_kernel"));
  CHORAL_TRY(const int64_t interval, count_or("full_attention_interval", 4));
  if (inner % value_heads != 0) {
    return corrupt("{} is {}, no multiple of the {} value heads", metadata().path_of(key("ssm.inner_size")), inner, value_heads);
  }
  out_.set("linear_num_key_heads", key_heads);
  out_.set("linear_num_value_heads", value_heads);
  out_.set("linear_key_head_dim", key_dim);
  out_.set("linear_value_head_dim", inner / value_heads);
  out_.set("linear_conv_kernel_dim", taps);
  out_.set("full_attention_interval", interval);
  out_.set("linear_out_proj_tiled", architecture_.tiled_value_heads);
  CHORAL_TRY(const int64_t rotary, count_or("rope.dimension_count", head_dim_));
  out_.set("partial_rotary_factor", static_cast<double>(rotary) / static_cast<double>(head_dim_));
  if (architecture_.experts) {
    CHORAL_TRY(const int64_t shared, count("expert_shared_feed_forward_length"));
    out_.set("shared_expert_intermediate_size", shared);
  }
  // The layers that predict further tokens stand after the model's own.
  CHORAL_TRY(const int64_t layers, count("block_count"));
  CHORAL_TRY(const int64_t predicting, metadata().get_int_or(key("nextn_predict_layers"), 0, {0, layers - 1}));
  out_.set("num_hidden_layers", layers - predicting);
  return {};
}

// Mistral 4's queries grow by a number that its files leave out and its configuration class knows.
Status GgufTranslation::query_scale(ConfigObject& scaling) const {
  constexpr std::string_view kPeriod = "attention.temperature_length";
  const ConfigValue* original = scaling.find("original_max_position_embeddings");
  CHORAL_TRY(const int64_t period, count_or(kPeriod, original == nullptr ? 1 : *original->as_int()));
  if (original != nullptr && period != *original->as_int()) {
    return unsupported("{} is {}; rope.scaling.original_context_length, {}, is supported", metadata().path_of(key(kPeriod)),
                       period, *original->as_int());
  }
  scaling.set("llama_4_scaling_beta", 0.1);
  return copy_double("attention.temperature_scale", "llama_4_scaling_beta", scaling);
}

// What the family's scaling has and the keys of yarn do not say. DeepSeek's two mscales are one in every file, a tenth of which
// is its logarithm's multiplier; gpt-oss's range of frequencies is not cut to whole numbers.
Status GgufTranslation::yarn_of_family(ConfigObject& scaling) const {
  constexpr std::string_view kMultiplier = "rope.scaling.yarn_log_multiplier";
  if (architecture_.name == "gpt-oss") scaling.set("truncate", false);
  if (architecture_.name == "mistral3") {
    scaling.set("mscale", 1.0), scaling.set("mscale_all_dim", 1.0);  // which cancel each other
    return copy_double("attention.temperature_scale", "llama_4_scaling_beta", scaling);
  }
  if (architecture_.name == "mistral4") CHORAL_RETURN_IF_ERROR(query_scale(scaling));
  if (!architecture_.latent || !has(kMultiplier)) return {};
  CHORAL_TRY(const double multiplier, metadata().get_double(key(kMultiplier), {0, 1e3}));
  const double mscale = as_written(static_cast<float>(as_written(multiplier) * 10));
  scaling.set("mscale", mscale);
  scaling.set("mscale_all_dim", mscale);
  return {};
}

}  // namespace choral::io
