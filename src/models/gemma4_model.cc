#include "models/gemma4_model.h"

#include <cmath>

#include "layers/gated_mlp.h"
#include "layers/layer_scale.h"
#include "layers/mapped_embedding.h"
#include "layers/sharing_attention.h"
#include "layers/vocab_embedding.h"
#include "models/model_outputs.h"

namespace choral::models {
namespace {

using layers::Builder;
using layers::Graph;
using layers::RMSNorm;
using layers::SharingAttention;
using layers::Value;
using KeysAndValues = SharingAttention::KeysAndValues;

// Tensors that files have beside what the model uses: what makes keys and values in layers that have none.
class UnusedKeys : public layers::Module {
 public:
  static constexpr std::string_view kLayerName = "unused_keys";
  struct Spec {
    std::string prefix;  // of the attention
  };
  UnusedKeys(Builder& builder, const Spec& spec) : prefix_(spec.prefix) { builder.modules.push_back(this); }

  Status load_weights(quant::WeightSource& source) override {
    for (const char* name : {"k_proj", "v_proj", "k_norm", "v_norm"}) source.ignore(fmt::format("{}.{}.", prefix_, name));
    return {};
  }
  Status process_weights_after_loading(const platform::Context&, quant::WeightSource&) override { return {}; }
  std::string prefix() const override { return prefix_; }
  int64_t expected_bytes(const quant::WeightRequest&) const override { return 0; }
  int64_t weight_bytes() const override { return 0; }
  int64_t parameters() const override { return 0; }
  std::string format() const override { return "none"; }
  std::string kernel_name(CpuLevel) const override { return "none"; }

 private:
  std::string prefix_;
};

// The experts beside a layer's MLP, and the norms around both.
struct Gemma4Experts {
  std::unique_ptr<RMSNorm> mlp_post_norm, norm, router_norm, post_norm;
  std::unique_ptr<layers::FusedMoE> moe;

  // mlp = norm(mlp) + norm(experts(norm(h)))
  void describe(Graph& graph, Value h, Value mlp) const {
    graph.add(layers::NormStep{mlp_post_norm.get(), mlp, mlp});
    const Value rows = graph.matrix(2 * h.cols), y = graph.matrix(h.cols);
    graph.add(layers::NormStep{norm.get(), h, rows.columns(0, h.cols)});
    graph.add(layers::NormStep{router_norm.get(), h, rows.columns(h.cols, h.cols)});
    moe->describe(graph, rows, {y, false});
    graph.add(layers::NormStep{post_norm.get(), y, y});
    graph.add(layers::AddStep{y, mlp});
  }
};

// The parts of the second embedding: every layer's, side by side.
struct LayerInputs {
  std::unique_ptr<layers::MappedEmbedding> table;
  std::unique_ptr<layers::ColumnParallelLinear> projection;
  std::unique_ptr<RMSNorm> norm;  // of a layer's part
  std::unique_ptr<layers::GatedActivation> act;
  Value projected, of_tokens;
  int64_t width = 0;

  void begin(Graph& graph, Value h) {
    projected = graph.matrix(projection->out_features());
    of_tokens = graph.matrix(projection->out_features());
    graph.add(layers::LinearStep{projection.get(), h, projected, false});
    graph.add(layers::ScaleStep{projected, 1 / std::sqrt(static_cast<float>(h.cols))});
    graph.add(layers::PluggedStep{table.get(), h, of_tokens, false});
    graph.add(layers::ScaleStep{of_tokens, std::sqrt(static_cast<float>(width))});
  }
  // y = layer `index`'s
  void describe(Graph& graph, int64_t index, Value y) const {
    graph.add(layers::NormStep{norm.get(), projected.columns(index * width, width), y});
    graph.add(layers::AddStep{of_tokens.columns(index * width, width), y});
    graph.add(layers::ScaleStep{y, 1 / std::sqrt(2.0F)});
  }
};

struct Gemma4Layer {
  std::unique_ptr<RMSNorm> norm, post_norm, mlp_norm, mlp_post_norm;
  std::unique_ptr<SharingAttention> attention;
  std::unique_ptr<UnusedKeys> unused;  // null in layers that have keys
  std::unique_ptr<layers::GatedMlp> mlp;
  std::optional<Gemma4Experts> experts;
  std::unique_ptr<layers::ColumnParallelLinear> input_gate;  // null, and the next two, without a second embedding
  std::unique_ptr<layers::RowParallelLinear> input_projection;
  std::unique_ptr<RMSNorm> input_post_norm;
  std::unique_ptr<layers::LayerScale> scale;

  void describe(Graph& graph, const LayerInputs& inputs, int64_t index) const {
    const Value h = graph.residual();
    const Value x = graph.matrix(h.cols), attended = graph.matrix(h.cols), y = graph.matrix(h.cols);
    const auto add_normed = [&](const RMSNorm& last, Value block) {  // x is free by then
      graph.add(layers::NormStep{&last, block, x});
      graph.add(layers::AddStep{x, h});
    };
    graph.add(layers::NormStep{norm.get(), h, x});
    attention->describe(graph, x, {attended, false});
    add_normed(*post_norm, attended);
    graph.add(layers::NormStep{mlp_norm.get(), h, x});
    mlp->describe(graph, x, {y, false});
    if (experts) experts->describe(graph, h, y);
    add_normed(*mlp_post_norm, y);
    if (input_gate != nullptr) describe_input(graph, inputs, index, add_normed);
    graph.add(layers::PluggedStep{scale.get(), h, h});
  }

 private:
  template <class AddNormed>
  void describe_input(Graph& graph, const LayerInputs& inputs, int64_t index, AddNormed add_normed) const {
    const Value h = graph.residual(), both = graph.matrix(2 * inputs.width);
    const Value gated = graph.matrix(inputs.width), y = graph.matrix(h.cols);
    graph.add(layers::LinearStep{input_gate.get(), h, both.columns(0, inputs.width), false});
    inputs.describe(graph, index, both.columns(inputs.width, inputs.width));
    graph.add(layers::ActivationStep{inputs.act.get(), both, gated});
    graph.add(layers::LinearStep{input_projection.get(), gated, y, false});
    add_normed(*input_post_norm, y);
  }
};

class Gemma4Model : public Model {
 public:
  Gemma4Model(Builder builder, Gemma4Spec spec, Head head)
      : spec_(std::move(spec)),
        rotary_(builder.make<layers::RotaryEmbedding>(decoder().rotary)),
        window_rotary_(builder.make<layers::RotaryEmbedding>(*decoder().window_rotary)),
        embed_tokens_(builder.make<layers::VocabParallelEmbedding>(
            {.prefix = "model.embed_tokens", .vocab = decoder().vocab, .hidden = decoder().hidden})),
        norm_(make_norm(builder, "model.norm")),
        graph_(decoder().hidden) {
    if (spec_.per_layer_width > 0) make_inputs(builder);
    for (int64_t i = 0; i < decoder().layers; ++i) layers_.push_back(make_layer(builder, i));
    outputs_ = std::make_unique<ModelOutputs>(builder, head, decoder(), *embed_tokens_);
    describe();
    modules_ = std::move(builder.modules);
    lora_targets_ = std::move(builder.lora_targets);
    status_ = std::move(builder.status);
  }

  const Status& status() const { return status_; }
  ModelSpec spec() const override { return &spec_; }
  std::vector<layers::KvShape> kv_shapes() const override {
    std::vector<layers::KvShape> shapes;
    for (int64_t i = 0; i < spec_.kv_layers; ++i) shapes.push_back(layers_[i].attention->kv_shape());
    return shapes;
  }
  int64_t hidden_size() const override { return decoder().hidden; }
  int64_t vocab_size() const override { return decoder().vocab; }
  Head head() const override { return outputs_->head(); }
  const layers::EmbeddingLayers& embedding_layers() const override { return outputs_->embedding_layers(); }
  bool sees_later() const override { return false; }
  int64_t max_positions() const override { return decoder().max_positions; }
  std::span<layers::Module* const> modules() const override { return modules_; }
  std::span<const lora::LoRATarget> lora_targets() const override { return lora_targets_; }
  std::vector<layers::FusionDecision> fuse(const platform::Context& ctx, const layers::FusionConfig& config) override {
    return layers::fuse(graph_, ctx, config);
  }
  void bind_kv_cache(int64_t layer, const layers::KvBinding& binding) override {
    layers_[layer].attention->bind_kv_cache(binding);
    for (int64_t i = spec_.kv_layers; i < decoder().layers; ++i) {
      if (source_of(i) == layer) layers_[i].attention->bind_kv_cache(binding);
    }
  }

  void forward(const platform::Context& ctx, const layers::ForwardBatch& batch, MatrixView<float> hidden) const override {
    embed_tokens_->lookup(ctx, batch.token_ids, hidden, batch.lora);
    graph_.run(ctx, batch, hidden);
  }

  void compute_logits(const platform::Context& ctx, const layers::ForwardBatch& batch, MatrixView<const float> hidden,
                      std::span<const int32_t> rows, MatrixView<float> logits) const override {
    outputs_->compute_logits(ctx, batch, hidden, rows, logits);
  }

 private:
  const DecoderSpec& decoder() const { return spec_.decoder; }
  bool has_window(int64_t layer) const { return decoder().sliding_window[layer] > 0; }
  // The layer at whose keys and values `layer` looks, which is its own where it has some.
  int64_t source_of(int64_t layer) const {
    if (layer < spec_.kv_layers) return layer;
    int64_t source = spec_.kv_layers - 1;
    while (has_window(source) != has_window(layer)) --source;  // the config's reader has seen that there is one
    return source;
  }

  std::unique_ptr<RMSNorm> make_norm(Builder& builder, std::string prefix) const {
    return builder.make<RMSNorm>({.prefix = std::move(prefix), .size = decoder().hidden, .eps = decoder().rms_norm_eps});
  }

  void make_inputs(Builder& builder) {
    const int64_t all = decoder().layers * spec_.per_layer_width;
    inputs_.width = spec_.per_layer_width;
    inputs_.table =
        builder.make<layers::MappedEmbedding>({.prefix = "model.embed_tokens_per_layer", .vocab = decoder().vocab, .width = all});
    inputs_.projection = builder.make<layers::ColumnParallelLinear>(
        {.prefix = "model.per_layer_model_projection", .in = decoder().hidden, .out = all});
    inputs_.norm = builder.make<RMSNorm>(
        {.prefix = "model.per_layer_projection_norm", .size = spec_.per_layer_width, .eps = decoder().rms_norm_eps});
    inputs_.act = builder.make<layers::GatedActivation>({.hidden_act = decoder().hidden_act});
  }

  std::unique_ptr<SharingAttention> make_attention(Builder& builder, int64_t index, std::string prefix) const {
    const bool window = has_window(index);
    const Gemma4Heads& heads = window ? spec_.windowed : spec_.full;
    const auto own = spec_.keys_are_values && !window ? KeysAndValues::kKeysAreValues : KeysAndValues::kBoth;
    return builder.make<SharingAttention>({.prefix = std::move(prefix),
                                           .hidden = decoder().hidden,
                                           .heads = decoder().heads,
                                           .kv_heads = heads.kv_heads,
                                           .head_dim = heads.head_dim,
                                           .sliding_window = decoder().sliding_window[index],
                                           .scale = decoder().attention_scale.value_or(1),
                                           .keys_and_values = index < spec_.kv_layers ? own : KeysAndValues::kAnotherLayers,
                                           .bias = decoder().qkv_bias,
                                           .rms_norm_eps = decoder().rms_norm_eps,
                                           .rotary = window ? window_rotary_.get() : rotary_.get()});
  }

  Gemma4Experts make_experts(Builder& builder, const std::string& prefix) const {
    const MoeSpec& moe = *decoder().moe;
    const auto norm = [&](std::string_view name) { return make_norm(builder, fmt::format("{}.{}", prefix, name)); };
    Gemma4Experts experts;
    experts.mlp_post_norm = norm("post_feedforward_layernorm_1");
    experts.norm = norm("pre_feedforward_layernorm_2");
    experts.router_norm = builder.make<RMSNorm>({.prefix = prefix + ".router.norm",
                                                 .size = decoder().hidden,
                                                 .eps = decoder().rms_norm_eps,
                                                 .tensor = prefix + ".router.scale",
                                                 .factor = 1 / std::sqrt(static_cast<float>(decoder().hidden))});
    experts.post_norm = norm("post_feedforward_layernorm_2");
    experts.moe = builder.make<layers::FusedMoE>({.prefix = prefix,
                                                  .names = moe.names,
                                                  .hidden = decoder().hidden,
                                                  .intermediate = moe.intermediate,
                                                  .experts = moe.experts,
                                                  .hidden_act = decoder().hidden_act,
                                                  .gating = moe.gating,
                                                  .merged_gate_up = true,
                                                  .own_router_row = true,
                                                  .expert_scale = prefix + ".router.per_expert_scale"});
    return experts;
  }

  Gemma4Layer make_layer(Builder& builder, int64_t index) const {
    const std::string prefix = "model.layers." + std::to_string(index);
    const auto norm = [&](std::string_view name) { return make_norm(builder, fmt::format("{}.{}", prefix, name)); };
    const bool shares = index >= spec_.kv_layers;
    Gemma4Layer layer;
    layer.norm = norm("input_layernorm");
    layer.attention = make_attention(builder, index, prefix + ".self_attn");
    if (shares) layer.unused = builder.make<UnusedKeys>({.prefix = prefix + ".self_attn"});
    layer.post_norm = norm("post_attention_layernorm");
    layer.mlp_norm = norm("pre_feedforward_layernorm");
    layer.mlp =
        builder.make<layers::GatedMlp>({.prefix = prefix + ".mlp",
                                        .hidden = decoder().hidden,
                                        .intermediate = decoder().intermediate * (shares && spec_.wide_shared_mlp ? 2 : 1),
                                        .hidden_act = decoder().hidden_act});
    if (decoder().moe) layer.experts = make_experts(builder, prefix);
    layer.mlp_post_norm = norm("post_feedforward_layernorm");
    if (spec_.per_layer_width > 0) {
      layer.input_gate = builder.make<layers::ColumnParallelLinear>(
          {.prefix = prefix + ".per_layer_input_gate", .in = decoder().hidden, .out = spec_.per_layer_width});
      layer.input_projection = builder.make<layers::RowParallelLinear>(
          {.prefix = prefix + ".per_layer_projection", .in = spec_.per_layer_width, .out = decoder().hidden});
      layer.input_post_norm = norm("post_per_layer_input_norm");
    }
    layer.scale = builder.make<layers::LayerScale>({.prefix = prefix + ".layer_scalar"});
    return layer;
  }

  void describe() {
    const Value h = graph_.residual();
    graph_.add(layers::ScaleStep{h, decoder().embedding_scale});
    if (spec_.per_layer_width > 0) inputs_.begin(graph_, h);
    for (int64_t i = 0; i < decoder().layers; ++i) layers_[i].describe(graph_, inputs_, i);
    graph_.add(layers::NormStep{norm_.get(), h, h});
    graph_.place();
  }

  Gemma4Spec spec_;
  std::unique_ptr<layers::RotaryEmbedding> rotary_, window_rotary_;
  std::unique_ptr<layers::VocabParallelEmbedding> embed_tokens_;
  std::unique_ptr<RMSNorm> norm_;
  LayerInputs inputs_;  // empty without a second embedding
  std::vector<Gemma4Layer> layers_;
  std::unique_ptr<ModelOutputs> outputs_;
  Graph graph_;
  std::vector<layers::Module*> modules_;
  std::vector<lora::LoRATarget> lora_targets_;
  Status status_;
};

}  // namespace

Result<std::unique_ptr<Model>> make_gemma4_model(Gemma4Spec spec, const ModelOptions& options) {
  auto model = std::make_unique<Gemma4Model>(
      Builder{options.session, options.quant_config, options.custom_ops, options.overrides, options.ranks}, std::move(spec),
      options.head);
  if (!model->status().ok()) return model->status();
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace choral::models
