#include "models/decoder.h"

#include <algorithm>

#include "layers/gated_mlp.h"
#include "layers/latent_attention.h"
#include "layers/vocab_embedding.h"
#include "models/model_outputs.h"

namespace choral::models {
namespace {

using layers::Builder;
using layers::ForwardBatch;
using layers::GatedMlp;
using layers::Graph;
using layers::RMSNorm;
using layers::SelfAttention;
using platform::Context;

SelfAttention::Spec attention_spec(const DecoderSpec& spec, int64_t layer, const std::string& prefix,
                                   const layers::RotaryEmbedding* rotary) {
  return {.prefix = prefix,
          .hidden = spec.hidden,
          .heads = spec.heads,
          .kv_heads = spec.kv_heads,
          .head_dim = spec.head_dim,
          .sliding_window = spec.sliding_window[layer],
          .scale = spec.attention_scale,
          .softcap = spec.attention_softcap,
          .merged_qkv = spec.merged_projections,
          .qkv_bias = spec.qkv_bias,
          .output_bias = spec.output_bias,
          .output_gate = spec.attention_gate,
          .sees_later = spec.sees_later,
          .sinks = spec.attention_sinks,
          .qk_norm =
              rotary == nullptr && spec.qk_norm == layers::QkNorm::kUnweightedTurnedHead ? layers::QkNorm::kNone : spec.qk_norm,
          .q_norm_name = spec.q_norm_name,
          .k_norm_name = spec.k_norm_name,
          .rms_norm_eps = spec.rms_norm_eps,
          .norm_weight = spec.norm_weight,
          .query_scale = spec.query_scale,
          .rotary = rotary};
}

layers::LatentAttention::Spec latent_spec(const DecoderSpec& spec, const std::string& prefix,
                                          const layers::RotaryEmbedding* rotary) {
  return {.prefix = prefix,
          .hidden = spec.hidden,
          .heads = spec.heads,
          .q_rank = spec.latent->q_rank,
          .kv_rank = spec.latent->kv_rank,
          .nope_dim = spec.latent->nope_dim,
          .rope_dim = spec.latent->rope_dim,
          .value_dim = spec.latent->value_dim,
          .scale = spec.attention_scale.value_or(1),
          .bias = spec.latent->bias,
          .query_scale = spec.query_scale,
          .rotary = rotary};
}

// Of a layer that keeps a state: what the family says of it, in this decoder.
template <class LayerSpec>
LayerSpec state_layer_spec(const DecoderSpec& spec, LayerSpec layer, std::string prefix) {
  layer.prefix = std::move(prefix);
  layer.hidden = spec.hidden;
  layer.rms_norm_eps = spec.rms_norm_eps;
  return layer;
}

GatedMlp::Spec mlp_spec(const DecoderSpec& spec, const std::string& prefix) {
  return {.prefix = prefix,
          .hidden = spec.hidden,
          .intermediate = spec.intermediate,
          .hidden_act = spec.hidden_act,
          .bias = spec.mlp_bias,
          .merged_gate_up = spec.merged_projections || spec.merged_gate_up,
          .linears = spec.mlp_linears};
}

bool turns_anywhere(const DecoderSpec& spec) {
  return spec.rotates.empty() || std::find(spec.rotates.begin(), spec.rotates.end(), true) != spec.rotates.end();
}

// y = norm(x)
void add_norm(Graph& graph, const DecoderSpec& spec, const RMSNorm& norm, const layers::Value& x, const layers::Value& y) {
  if (!spec.centred_norms) return graph.add(layers::NormStep{&norm, x, y});
  graph.add(layers::SubtractMeanStep{x, y});
  graph.add(layers::NormStep{&norm, y, y});
}

// A block and its norms: h += factor · post_norm(block(norm(h))), of which a family has the norms before, after, or both.
template <class Block>
struct NormedBlock {
  std::unique_ptr<RMSNorm> norm;  // null: none, as the other
  std::unique_ptr<Block> block;
  std::unique_ptr<RMSNorm> post_norm = {};

  layers::Value describe_norm(Graph& graph, const DecoderSpec& spec) const {
    if (norm == nullptr) return graph.residual();
    const auto x = graph.matrix(spec.hidden);
    add_norm(graph, spec, *norm, graph.residual(), x);
    return x;
  }

  void describe_block(Graph& graph, const DecoderSpec& spec, const layers::Value& x) const {
    const auto h = graph.residual();
    if (post_norm == nullptr && spec.residual_multiplier == 1) return block->describe(graph, x, {h, true});
    const auto y = graph.matrix(h.cols);
    block->describe(graph, x, {y, false});
    if (post_norm != nullptr) add_norm(graph, spec, *post_norm, y, y);
    if (spec.residual_multiplier != 1) graph.add(layers::ScaleStep{y, spec.residual_multiplier});
    graph.add(layers::AddStep{y, h});
  }

  void describe(Graph& graph, const DecoderSpec& spec) const { describe_block(graph, spec, describe_norm(graph, spec)); }
};

// `layer`: "model.layers.3".
layers::FusedMoE::Spec moe_spec(const DecoderSpec& spec, const std::string& layer) {
  const std::string& shared = spec.moe->shared_block;
  return {.prefix = fmt::format("{}.{}", layer, spec.moe->block),
          .names = spec.moe->names,
          .hidden = spec.hidden,
          .intermediate = spec.moe->intermediate,
          .experts = spec.moe->experts,
          .shared_intermediate = spec.moe->shared_intermediate,
          .shared_prefix = shared.empty() ? shared : fmt::format("{}.{}", layer, shared),
          .shared_linears = spec.moe->shared_linears,
          .shared_gate = spec.moe->shared_gate,
          .hidden_act = spec.hidden_act,
          .gating = spec.moe->gating,
          .selection_bias = spec.moe->selection_bias,
          .bias = spec.moe->bias,
          .weigh_input = spec.moe->weigh_input,
          .merged_gate_up = spec.moe->merged_gate_up,
          .swiglu = spec.moe->swiglu};
}

struct DecoderLayer {
  NormedBlock<layers::Block> attention;  // or a gated delta net, or a Mamba-2 layer
  NormedBlock<layers::Block> mlp;        // or a mixture of experts
};

class DecoderModel : public Model {
 public:
  DecoderModel(Builder builder, DecoderSpec spec, Head head)
      : spec_(std::move(spec)),
        rotary_(turns_anywhere(spec_) ? builder.make<layers::RotaryEmbedding>(spec_.rotary) : nullptr),
        window_rotary_(spec_.window_rotary ? builder.make<layers::RotaryEmbedding>(*spec_.window_rotary) : nullptr),
        embed_tokens_(builder.make<layers::VocabParallelEmbedding>(
            {.prefix = "model.embed_tokens", .vocab = spec_.vocab, .hidden = spec_.hidden})),
        norm_(make_norm(builder, "model.norm")),
        graph_(spec_.hidden) {
    for (int64_t i = 0; i < spec_.layers; ++i) layers_.push_back(make_layer(builder, i));
    outputs_ = std::make_unique<ModelOutputs>(builder, head, spec_, *embed_tokens_);
    describe();
    modules_ = std::move(builder.modules);
    lora_targets_ = std::move(builder.lora_targets);
    status_ = std::move(builder.status);
  }

  const Status& status() const { return status_; }
  ModelSpec spec() const override { return &spec_; }
  std::vector<layers::KvShape> kv_shapes() const override {
    std::vector<layers::KvShape> shapes;
    for (const auto* block : keeping_keys_) shapes.push_back(block->kv_shape());
    return shapes;
  }
  std::vector<layers::StateShape> state_shapes() const override {
    std::vector<layers::StateShape> shapes;
    for (const auto* block : keeping_states_) shapes.push_back(block->state_shape());
    return shapes;
  }
  int64_t hidden_size() const override { return spec_.hidden; }
  int64_t vocab_size() const override { return spec_.vocab; }
  int64_t max_positions() const override { return spec_.max_positions; }
  Head head() const override { return outputs_->head(); }
  const layers::EmbeddingLayers& embedding_layers() const override { return outputs_->embedding_layers(); }
  bool sees_later() const override { return spec_.sees_later; }
  std::span<layers::Module* const> modules() const override { return modules_; }
  std::span<const lora::LoRATarget> lora_targets() const override { return lora_targets_; }
  std::vector<layers::FusionDecision> fuse(const Context& ctx, const layers::FusionConfig& config) override {
    return layers::fuse(graph_, ctx, config);
  }
  void bind_kv_cache(int64_t layer, const layers::KvBinding& binding) override { keeping_keys_[layer]->bind_kv_cache(binding); }
  void bind_state(int64_t layer, const kernels::StateView& slots) override { keeping_states_[layer]->bind_state(slots); }

  void forward(const Context& ctx, const ForwardBatch& batch, MatrixView<float> hidden) const override {
    embed_tokens_->lookup(ctx, batch.token_ids, hidden, batch.lora);
    graph_.run(ctx, batch, hidden);
  }

  void compute_logits(const Context& ctx, const ForwardBatch& batch, MatrixView<const float> hidden,
                      std::span<const int32_t> rows, MatrixView<float> logits) const override {
    outputs_->compute_logits(ctx, batch, hidden, rows, logits);
  }

 private:
  std::unique_ptr<RMSNorm> make_norm(Builder& builder, std::string prefix) const {
    return layers::make_rms_norm(
        builder, spec_.norm_weight,
        {.prefix = std::move(prefix), .size = spec_.hidden, .eps = spec_.rms_norm_eps, .biased = spec_.norm_biases});
  }

  DecoderLayer make_layer(Builder& builder, int64_t index) {
    const std::string prefix = "model.layers." + std::to_string(index);
    const auto norm = [&](std::string_view name) { return make_norm(builder, fmt::format("{}.{}", prefix, name)); };
    const auto* rotary = spec_.sliding_window[index] > 0 && window_rotary_ ? window_rotary_.get() : rotary_.get();
    if (!spec_.rotates.empty() && !spec_.rotates[index]) rotary = nullptr;
    DecoderLayer layer;
    const auto& names = spec_.norm_names;
    if (spec_.pre_norms) layer.attention.norm = norm(names.attention);
    if (spec_.delta_net && spec_.delta_net->layers[index]) {
      layer.attention.block =
          keep(keeping_states_,
               builder.make<layers::GatedDeltaNet>(state_layer_spec(spec_, spec_.delta_net->layer, prefix + ".linear_attn")));
    } else if (spec_.mamba2 && spec_.mamba2->layers[index]) {
      layer.attention.block =
          keep(keeping_states_, builder.make<layers::Mamba2>(state_layer_spec(spec_, spec_.mamba2->layer, prefix + ".mamba")));
    } else if (spec_.latent) {
      layer.attention.block =
          keep(keeping_keys_, builder.make<layers::LatentAttention>(latent_spec(spec_, prefix + ".self_attn", rotary)));
    } else {
      layer.attention.block =
          keep(keeping_keys_, builder.make<SelfAttention>(attention_spec(spec_, index, prefix + ".self_attn", rotary)));
    }
    if (spec_.post_norms) layer.attention.post_norm = norm(names.after_attention);
    if (spec_.pre_norms && !spec_.parallel_blocks) layer.mlp.norm = norm(spec_.post_norms ? names.mlp : names.after_attention);
    if (spec_.moe && spec_.moe->layers[index]) {
      layer.mlp.block = builder.make<layers::FusedMoE>(moe_spec(spec_, prefix));
    } else {
      layer.mlp.block = builder.make<GatedMlp>(mlp_spec(spec_, fmt::format("{}.{}", prefix, spec_.mlp_block)));
    }
    if (spec_.post_norms) layer.mlp.post_norm = norm(names.after_mlp);
    return layer;
  }

  // Notes the block among those of its kind.
  template <class Kind, class Block>
  static std::unique_ptr<Block> keep(std::vector<Kind*>& kind, std::unique_ptr<Block> block) {
    kind.push_back(block.get());
    return block;
  }

  void describe() {
    const auto h = graph_.residual();
    if (spec_.embedding_scale != 1) graph_.add(layers::ScaleStep{h, spec_.embedding_scale});
    for (const auto& layer : layers_) {
      if (spec_.parallel_blocks) {
        const auto x = layer.attention.describe_norm(graph_, spec_);
        layer.attention.describe_block(graph_, spec_, x);
        layer.mlp.describe_block(graph_, spec_, x);
      } else {
        layer.attention.describe(graph_, spec_);
        layer.mlp.describe(graph_, spec_);
      }
    }
    add_norm(graph_, spec_, *norm_, h, h);
    graph_.place();
  }

  DecoderSpec spec_;
  std::unique_ptr<layers::RotaryEmbedding> rotary_;         // null: no layer turns q and k
  std::unique_ptr<layers::RotaryEmbedding> window_rotary_;  // null: rotary_ is every layer's
  std::unique_ptr<layers::VocabParallelEmbedding> embed_tokens_;
  std::unique_ptr<RMSNorm> norm_;
  std::vector<DecoderLayer> layers_;
  std::vector<layers::AttentionBlock*> keeping_keys_;  // of those, in order
  std::vector<layers::StateBlock*> keeping_states_;
  std::unique_ptr<ModelOutputs> outputs_;
  Graph graph_;
  std::vector<layers::Module*> modules_;
  std::vector<lora::LoRATarget> lora_targets_;
  Status status_;
};

}  // namespace

Result<std::unique_ptr<Model>> make_decoder(DecoderSpec spec, const ModelOptions& options) {
  if (spec.latent && spec.sees_later) return unsupported("latent attention is causal here, and the model's configuration is not");
  auto model = std::make_unique<DecoderModel>(
      Builder{options.session, options.quant_config, options.custom_ops, options.overrides, options.ranks}, std::move(spec),
      options.head);
  if (!model->status().ok()) return model->status();
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace choral::models
