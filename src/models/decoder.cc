#include "models/decoder.h"

#include <cmath>

#include "layers/activation.h"
#include "layers/attention.h"
#include "layers/rms_norm.h"
#include "layers/rotary_embedding.h"
#include "layers/vocab_embedding.h"

namespace choral::models {
namespace {

using layers::Builder;
using layers::ForwardBatch;
using platform::Context;

class SelfAttention {
 public:
  SelfAttention(Builder& builder, const DecoderSpec& spec, int64_t layer, const std::string& prefix,
                const layers::RotaryEmbedding& rotary)
      : rotary_(rotary),
        q_size_(spec.heads * spec.head_dim),
        kv_size_(spec.kv_heads * spec.head_dim),
        qkv_proj_(builder, prefix + ".qkv_proj", spec.hidden, spec.head_dim, spec.heads, spec.kv_heads, spec.qkv_bias),
        attention_({.heads = spec.heads,
                    .kv_heads = spec.kv_heads,
                    .head_dim = spec.head_dim,
                    .scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim)),
                    .sliding_window = spec.sliding_window[layer]}),
        o_proj_(builder, prefix + ".o_proj", q_size_, spec.hidden, spec.output_bias) {
    if (!spec.qk_norm) return;
    q_norm_.emplace(builder, prefix + ".q_norm", spec.head_dim, spec.rms_norm_eps);
    k_norm_.emplace(builder, prefix + ".k_norm", spec.head_dim, spec.rms_norm_eps);
  }

  // h += o_proj(attention(rope(norm(q)), rope(norm(k)), v)), q, k, v = qkv_proj(x)
  void forward_add(const Context& ctx, const ForwardBatch& batch, MatrixView<const float> x, MatrixView<float> h) const {
    const Arena::Mark mark(ctx.arena());
    const auto qkv = ctx.make_matrix(x.rows, q_size_ + 2 * kv_size_);
    qkv_proj_.forward(ctx, x, qkv, batch.lora);
    const auto q = qkv.sub_cols(0, q_size_);
    const auto k = qkv.sub_cols(q_size_, kv_size_);
    const auto v = qkv.sub_cols(q_size_ + kv_size_, kv_size_);
    if (q_norm_) q_norm_->forward_heads(ctx, q, batch.lora);
    if (k_norm_) k_norm_->forward_heads(ctx, k, batch.lora);
    rotary_.forward(ctx, batch.positions, q, k);
    const auto out = ctx.make_matrix(x.rows, q_size_);
    attention_.forward(ctx, batch, q, k, v, out);
    o_proj_.forward_add(ctx, out, h, batch.lora);
  }

  void bind_kv_cache(const kernels::KvCacheView& cache) { attention_.bind_kv_cache(cache); }

 private:
  const layers::RotaryEmbedding& rotary_;
  int64_t q_size_, kv_size_;
  layers::QKVParallelLinear qkv_proj_;
  std::optional<layers::RMSNorm> q_norm_, k_norm_;
  layers::Attention attention_;
  layers::RowParallelLinear o_proj_;
};

class GatedMlp {
 public:
  GatedMlp(Builder& builder, const DecoderSpec& spec, const std::string& prefix)
      : intermediate_(spec.intermediate),
        gate_up_proj_(builder, prefix + ".gate_up_proj", spec.hidden, {"gate_proj", "up_proj"}, {intermediate_, intermediate_}, spec.mlp_bias),
        act_(builder, spec.hidden_act),
        down_proj_(builder, prefix + ".down_proj", intermediate_, spec.hidden, spec.mlp_bias) {}

  // h += down_proj(act(gate_proj(x))·up_proj(x))
  void forward_add(const Context& ctx, const ForwardBatch& batch, MatrixView<const float> x, MatrixView<float> h) const {
    const Arena::Mark mark(ctx.arena());
    const auto gate_up = ctx.make_matrix(x.rows, 2 * intermediate_);
    gate_up_proj_.forward(ctx, x, gate_up, batch.lora);
    const auto gated = ctx.make_matrix(x.rows, intermediate_);
    act_.forward(ctx, gate_up, gated);
    down_proj_.forward_add(ctx, gated, h, batch.lora);
  }

 private:
  int64_t intermediate_;
  layers::MergedColumnParallelLinear gate_up_proj_;
  layers::GatedActivation act_;
  layers::RowParallelLinear down_proj_;
};

class DecoderLayer {
 public:
  DecoderLayer(Builder& builder, const DecoderSpec& spec, int64_t layer, const std::string& prefix,
               const layers::RotaryEmbedding& rotary)
      : input_layernorm_(builder, prefix + ".input_layernorm", spec.hidden, spec.rms_norm_eps),
        self_attn_(builder, spec, layer, prefix + ".self_attn", rotary),
        post_attention_layernorm_(builder, prefix + ".post_attention_layernorm", spec.hidden, spec.rms_norm_eps),
        mlp_(builder, spec, prefix + ".mlp") {}

  void forward(const Context& ctx, const ForwardBatch& batch, MatrixView<float> h) const {
    const Arena::Mark mark(ctx.arena());
    const auto x = ctx.make_matrix(h.rows, h.cols);
    input_layernorm_.forward(ctx, h, x, batch.lora);
    self_attn_.forward_add(ctx, batch, x, h);
    post_attention_layernorm_.forward(ctx, h, x, batch.lora);
    mlp_.forward_add(ctx, batch, x, h);
  }

  void bind_kv_cache(const kernels::KvCacheView& cache) { self_attn_.bind_kv_cache(cache); }

 private:
  layers::RMSNorm input_layernorm_;
  SelfAttention self_attn_;
  layers::RMSNorm post_attention_layernorm_;
  GatedMlp mlp_;
};

class DecoderModel : public Model {
 public:
  DecoderModel(Builder builder, DecoderSpec spec)
      : spec_(std::move(spec)),
        rotary_(builder, spec_.rotary),
        embed_tokens_(builder, "model.embed_tokens", spec_.vocab, spec_.hidden),
        norm_(builder, "model.norm", spec_.hidden, spec_.rms_norm_eps) {
    layers_.reserve(spec_.layers);
    for (int64_t i = 0; i < spec_.layers; ++i) {
      layers_.push_back(std::make_unique<DecoderLayer>(builder, spec_, i, "model.layers." + std::to_string(i), rotary_));
    }
    if (!spec_.tie_word_embeddings) lm_head_.emplace(builder, "lm_head", spec_.vocab, spec_.hidden);
    logits_.emplace(builder, lm_head_ ? static_cast<const layers::LinearBase&>(*lm_head_) : embed_tokens_, "lm_head");
    modules_ = std::move(builder.modules);
    lora_targets_ = std::move(builder.lora_targets);
    status_ = std::move(builder.status);
  }

  const Status& status() const { return status_; }
  KvCacheShape kv_cache_shape() const override { return {spec_.layers, spec_.kv_heads, spec_.head_dim}; }
  int64_t hidden_size() const override { return spec_.hidden; }
  int64_t vocab_size() const override { return spec_.vocab; }
  int64_t max_positions() const override { return spec_.max_positions; }
  std::span<layers::Module* const> modules() const override { return modules_; }
  std::span<const lora::LoRATarget> lora_targets() const override { return lora_targets_; }
  void bind_kv_cache(int64_t layer, const kernels::KvCacheView& cache) override { layers_[layer]->bind_kv_cache(cache); }

  void forward(const Context& ctx, const ForwardBatch& batch, MatrixView<float> hidden) const override {
    embed_tokens_.lookup(ctx, batch.token_ids, hidden, batch.lora);
    for (const auto& layer : layers_) layer->forward(ctx, batch, hidden);
    norm_.forward(ctx, hidden, hidden, batch.lora);
  }

  void compute_logits(const Context& ctx, const ForwardBatch& batch, MatrixView<const float> hidden,
                      std::span<const int32_t> rows, MatrixView<float> logits) const override {
    logits_->forward(ctx, hidden, rows, logits, batch.lora);
  }

 private:
  DecoderSpec spec_;
  layers::RotaryEmbedding rotary_;
  layers::VocabParallelEmbedding embed_tokens_;
  std::vector<std::unique_ptr<DecoderLayer>> layers_;
  layers::RMSNorm norm_;
  std::optional<layers::ParallelLMHead> lm_head_;
  std::optional<layers::LogitsProcessor> logits_;
  std::vector<layers::Module*> modules_;
  std::vector<lora::LoRATarget> lora_targets_;
  Status status_;
};

}  // namespace

Result<std::unique_ptr<Model>> make_decoder(DecoderSpec spec, const ModelOptions& options) {
  auto model = std::make_unique<DecoderModel>(Builder{options.platform, options.quant_config, options.custom_ops},
                                              std::move(spec));
  if (!model->status().ok()) return model->status();
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace choral::models
