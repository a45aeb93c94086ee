// What GGUF metadata says of single families of mixtures, and what their files leave to their readers.
#include <cmath>

#include "io/gguf_translation.h"

namespace choral::io {

Status GgufTranslation::glm4moe() {
  CHORAL_RETURN_IF_ERROR(shared_experts());
  CHORAL_TRY(const int64_t groups, count_or("expert_group_count", 1));
  CHORAL_TRY(const int64_t used, count_or("expert_group_used_count", groups));
  out_.set("n_group", groups);
  out_.set("topk_group", used);
  out_.set("use_qk_norm", file_.contains("blk.0.attn_q_norm.weight"));
  if (out_.find("partial_rotary_factor") == nullptr) out_.set("partial_rotary_factor", 1.0);  // as Solar Open's
  return {};
}

Status GgufTranslation::granitemoe() {
  CHORAL_TRY(const int64_t shared, metadata().get_int_or(key("expert_shared_feed_forward_length"), 0, kNotNegative));
  out_.set("shared_intermediate_size", shared);
  return granite_multipliers();
}

// Its readers know chunks, temperature and which layers do not turn by heart, and the larger model by its experts: it alone norms
// no heads.
Status GgufTranslation::llama4() {
  constexpr int64_t kExpertsOfMaverick = 128;
  if (has("attention.sliding_window") && out_.find("sliding_window") == nullptr) {
    return unsupported("{} is 0: models of this form without chunks are not supported",
                       metadata().path_of(key("attention.sliding_window")));
  }
  CHORAL_TRY(const int64_t dense, count("feed_forward_length"));
  CHORAL_TRY(const int64_t expert, count("expert_feed_forward_length"));
  CHORAL_TRY(const int64_t experts, count("expert_count"));
  CHORAL_TRY(const int64_t step, count_or("interleave_moe_layer_step", 1));
  out_.set("intermediate_size", expert);
  out_.set("intermediate_size_mlp", dense);
  out_.set("interleave_moe_layer_step", step);
  out_.set("use_qk_norm", experts != kExpertsOfMaverick);
  return {};
}

Status GgufTranslation::ernie4_5_moe() {
  CHORAL_TRY(const int64_t shared, metadata().get_int_or(key("expert_shared_count"), 0, kNotNegative));
  CHORAL_TRY(const int64_t dense, metadata().get_int_or(key("leading_dense_block_count"), 0, kNotNegative));
  CHORAL_TRY(const int64_t step, count_or("interleave_moe_layer_step", 1));
  out_.set("moe_num_shared_experts", shared);
  out_.set("moe_layer_start_index", dense);
  out_.set("moe_layer_interval", step);
  return {};
}

Status GgufTranslation::hunyuan_moe() {
  CHORAL_TRY(const int64_t dense, count("feed_forward_length"));
  CHORAL_TRY(const int64_t shared, count_or("expert_shared_feed_forward_length", dense));
  if (shared == dense) return {};
  return unsupported("{} is {}; feed_forward_length, {}, is supported",
                     metadata().path_of(key("expert_shared_feed_forward_length")), shared, dense);
}

// The converter writes longrope's usual factor where the one long model, Phi-3.5-MoE, has another.
Status GgufTranslation::phimoe() {
  constexpr int64_t kLong = 131072, kOriginal = 4096;
  constexpr double kMscale = 1.243163121016122;
  out_.set("lm_head_bias", file_.contains("output.bias"));
  const ConfigValue* said = out_.find("rope_scaling");
  CHORAL_TRY(const int64_t context, count("context_length"));
  if (said == nullptr || said->if_object() == nullptr || context != kLong) return {};
  ConfigObject scaling = *said->if_object();
  const ConfigValue* original = scaling.find("original_max_position_embeddings");
  const ConfigValue* factor = scaling.find("attention_factor");
  const double usual = std::sqrt(1 + std::log(static_cast<double>(kLong) / kOriginal) / std::log(static_cast<double>(kOriginal)));
  if (original == nullptr || original->as_int() != kOriginal || factor == nullptr) return {};
  if (std::abs(factor->as_double().value_or(0) - usual) > 1e-5) return {};
  scaling.set("attention_factor", kMscale);
  out_.set("rope_scaling", std::move(scaling));
  return {};
}

// Every reader of these files leaves the chosen experts their shares, and knows a shared expert by the dense size where it has no
// other.
Status GgufTranslation::qwen2moe() {
  out_.set("norm_topk_prob", false);
  out_.set("qkv_bias", file_.contains("blk.0.attn_q.bias"));
  CHORAL_TRY(const int64_t dense, count("feed_forward_length"));
  CHORAL_TRY(const int64_t shared, count_or("expert_shared_feed_forward_length", dense));
  out_.set("shared_expert_intermediate_size", shared);
  if (has("expert_feed_forward_length")) return {};
  CHORAL_TRY(const int64_t used, count("expert_used_count"));
  out_.set("moe_intermediate_size", dense / used);
  return {};
}

Status GgufTranslation::gpt_oss() {
  CHORAL_TRY(const int64_t intermediate, count("expert_feed_forward_length"));
  out_.set("intermediate_size", intermediate);
  return {};
}

Status GgufTranslation::olmoe() {
  out_.set("norm_topk_prob", false);  // of every reader of these files
  return copy_double("attention.clamp_kqv", "clip_qkv", out_);
}

}  // namespace choral::io
