#include "layers/fused_moe.h"

#include <algorithm>
#include <numeric>

#include "platform/host_view.h"

namespace choral::layers {
MoeRouter::MoeRouter(Builder& builder, const Spec& spec)
    : ReplicatedLinear(builder, quant::LayerKind::kRouter,
                       {.prefix = spec.prefix, .in = spec.hidden, .out = spec.experts, .bias = spec.bias}),
      scale_tensor_(spec.expert_scale),
      selection_bias_(spec.selection_bias.empty() ? 0 : spec.experts),
      selection_bias_name_(spec.selection_bias),
      selection_bias_row_(spec.selection_bias_row),
      expert_scale_(spec.expert_scale.empty() ? 0 : spec.experts) {
  if (builder.lora_targets.empty()) return;  // of a layer that failed
  if (!selection_bias_.empty()) builder.lora_targets.back().selection_bias = [this] { return selection_bias(); };
  builder.lora_targets.back().name_in_5 = spec.name_in_5;
}

Status MoeRouter::load_weights(quant::WeightSource& source) {
  CHORAL_RETURN_IF_ERROR(ReplicatedLinear::load_weights(source));
  if (!expert_scale_.empty()) CHORAL_RETURN_IF_ERROR(source.read_vector(scale_tensor_, expert_scale_));
  if (selection_bias_.empty()) return {};
  const std::string& name = selection_bias_name_;
  const int64_t experts = std::ssize(selection_bias_);
  CHORAL_TRY(const auto tensor, source.take(name, selection_bias_row_ ? Shape{1, experts} : Shape{experts}));
  if (!facts(tensor.view.dtype).is_floating) {
    return unsupported("tensor {} is stored as {}, a float type is wanted", name, dtype_name(tensor.view.dtype));
  }
  quant::read_vector(tensor, {.as_stored = true}, selection_bias_);  // never rounded: it decides between near equals
  source.release(name);
  return {};
}

SharedExpertGate::SharedExpertGate(Builder& builder, const Spec& spec)
    : gate_(builder.make<MoeRouter>({.prefix = spec.prefix, .hidden = spec.hidden, .experts = 1})) {}

void SharedExpertGate::add(const platform::Context& ctx, const ForwardBatch& batch, MatrixView<const float> x,
                           MatrixView<const float> from, MatrixView<float> y) const {
  const platform::StepMark mark(ctx);
  const auto logits = ctx.make_matrix(x.rows, 1), factors = ctx.make_matrix(x.rows, 1);
  gate_->forward(ctx, x, logits, batch.lora);
  const auto chosen = ctx.kernel.scratch.make<int32_t>(x.rows), places = ctx.kernel.scratch.make<int32_t>(x.rows);
  ctx.ops.moe_gating(ctx, logits, {.scoring = kernels::GateScoring::kSigmoid}, {chosen.data(), x.rows, 1}, factors);
  std::iota(places.begin(), places.end(), 0);
  ctx.ops.moe_combine(ctx, from, platform::place_indices<int32_t>(ctx, places), factors, /*add=*/true, y);
}

namespace {

std::string in_block_or_none(const FusedMoE::Spec& spec, const std::string& name) {
  return name.empty() ? name : fmt::format("{}.{}", spec.prefix, name);
}

std::string selection_bias_name(const FusedMoE::Spec& spec) {
  if (!spec.selection_bias) return {};
  if (!spec.names.selection_bias.empty()) return fmt::format("{}.{}", spec.prefix, spec.names.selection_bias);
  return fmt::format("{}.{}.e_score_correction_bias", spec.prefix, spec.names.router);
}

}  // namespace

FusedMoE::FusedMoE(Builder& builder, const Spec& spec)
    : CustomOp(kLayerName, builder.custom_ops, builder.session),
      gating_(spec.gating),
      hidden_(spec.hidden),
      intermediate_(spec.intermediate),
      weigh_input_(spec.weigh_input),
      own_router_row_(spec.own_router_row),
      router_(builder.make<MoeRouter>({.prefix = fmt::format("{}.{}", spec.prefix, spec.names.router),
                                       .hidden = spec.hidden,
                                       .experts = spec.experts,
                                       .selection_bias = selection_bias_name(spec),
                                       .selection_bias_row = spec.names.selection_bias_row,
                                       .bias = spec.bias,
                                       .name_in_5 = in_block_or_none(spec, spec.names.router_in_5),
                                       .expert_scale = spec.expert_scale})),
      choose_(bind<platform::ops::MoeGating>()),
      grouped_matmul_(bind<platform::ops::GroupedMatmul>()),
      combine_(bind<platform::ops::MoeCombine>()) {
  for (int64_t e = 0; e < spec.experts; ++e) {
    const auto name = [&, prefix = fmt::format("{}.experts.{}", spec.prefix, e)](std::string_view part) {
      return fmt::format("{}.{}", prefix, part);
    };
    experts_.push_back({builder.make<MergedColumnParallelLinear>({.prefix = name("gate_up_proj"),
                                                                  .in = spec.hidden,
                                                                  .members = {spec.names.gate, spec.names.up},
                                                                  .out = {spec.intermediate, spec.intermediate},
                                                                  .bias = spec.bias,
                                                                  .merged = spec.merged_gate_up || spec.swiglu.has_value()}),
                        builder.make<RowParallelLinear>(
                            {.prefix = name(spec.names.down), .in = spec.intermediate, .out = spec.hidden, .bias = spec.bias})});
  }
  if (spec.swiglu) {
    act_ = builder.make<SwigluOAIAndMul>(*spec.swiglu);
  } else {
    act_ = builder.make<GatedActivation>({.hidden_act = spec.hidden_act});
  }
  if (spec.shared_intermediate == 0) return;
  shared_experts_ = make_shared_experts(builder, spec);
  if (spec.shared_gate) {
    shared_gate_ = builder.make<SharedExpertGate>({.prefix = spec.prefix + ".shared_expert_gate", .hidden = spec.hidden});
  }
}

std::unique_ptr<GatedMlp> FusedMoE::make_shared_experts(Builder& builder, const Spec& spec) {
  return builder.make<GatedMlp>(
      {.prefix = spec.shared_prefix.empty() ? fmt::format("{}.{}", spec.prefix, spec.names.shared) : spec.shared_prefix,
       .hidden = spec.hidden,
       .intermediate = spec.shared_intermediate,
       .hidden_act = spec.hidden_act,
       .linears = spec.shared_linears});
}

void FusedMoE::describe(Graph& graph, Value x, const Output& out) const {
  graph.add(PluggedStep{this, x, out.y, out.add});
  if (!shared_experts_) return;
  if (!shared_gate_) return shared_experts_->describe(graph, x, {out.y, true});
  const Value shared = graph.matrix(hidden_);
  shared_experts_->describe(graph, x, {shared, false});
  graph.add(GatedAddStep{shared_gate_.get(), x, shared, out.y});
}

kernels::ExpertRows FusedMoE::route(const platform::Context& ctx, MatrixView<const float> logits,
                                    MatrixView<float> weights) const {
  kernels::MoeGating gating = gating_;
  gating.selection_bias = router_->selection_bias();
  gating.expert_scale = router_->expert_scale();
  const MatrixView<int32_t> ids(ctx.kernel.scratch.make<int32_t>(weights.rows * weights.cols).data(), weights.rows, weights.cols);
  choose_(ctx, logits, gating, ids, weights);
  return kernels::sort_by_expert(ids, std::ssize(experts_), ctx.kernel.scratch);
}

MatrixView<float> FusedMoE::gather(const platform::Context& ctx, MatrixView<const float> x, const kernels::ExpertRows& rows,
                                   MatrixView<const float>& weights) const {
  const int64_t slots = std::ssize(rows.tokens);
  const auto gathered = ctx.make_matrix(slots, hidden_);
  ctx.ops.take_rows(ctx, x, platform::place_indices<int32_t>(ctx, rows.tokens), gathered);
  if (!weigh_input_) return gathered;
  auto& scratch = ctx.kernel.scratch;
  const auto slot_at = scratch.make<int32_t>(slots), each = scratch.make<int32_t>(slots);
  for (int64_t i = 0; i < slots; ++i) slot_at[rows.places[i]] = static_cast<int32_t>(i);
  std::iota(each.begin(), each.end(), 0);
  const auto own = ctx.make_matrix(slots, 1), weighed = ctx.make_matrix(slots, hidden_);
  ctx.ops.take_rows(ctx, {weights.data, slots, 1}, platform::place_indices<int32_t>(ctx, slot_at), own);
  combine_(ctx, gathered, platform::place_indices<int32_t>(ctx, each), own, /*add=*/false, weighed);
  const auto ones = scratch.make<float>(slots);
  std::fill(ones.begin(), ones.end(), 1.0F);
  weights = {platform::to_device<float>(ctx, ones), weights.rows, weights.cols};
  return weighed;
}

void FusedMoE::forward(const platform::Context& ctx, const ForwardBatch& batch, MatrixView<const float> x, bool add,
                       MatrixView<float> y) const {
  const platform::StepMark mark(ctx);
  const auto logits = ctx.make_matrix(x.rows, std::ssize(experts_)), weights = ctx.make_matrix(x.rows, gating_.top_k);
  router_->forward(ctx, x.sub_cols(own_router_row_ ? hidden_ : 0, hidden_), logits, batch.lora);
  const auto rows = route(ctx, logits, weights);

  // The experts that any rows came to.
  const auto met = ctx.kernel.scratch.make<const Expert*>(experts_.size());
  const auto parts = ctx.kernel.scratch.make<LinearBase::Rows>(experts_.size());
  size_t count = 0;
  int64_t begin = 0;
  for (size_t e = 0; e < experts_.size(); begin = rows.ends[e++]) {
    if (rows.ends[e] == begin) continue;
    LinearBase::Rows& part = parts[count] = {.begin = begin, .count = rows.ends[e] - begin};
    if (batch.lora != nullptr) part.groups = batch.lora->row_groups(rows.tokens.subspan(begin, part.count), ctx.kernel.scratch);
    met[count++] = &experts_[e];
  }
  const auto forward_all = [&](auto layer_of, MatrixView<const float> from, MatrixView<float> to) {
    for (size_t i = 0; i < count; ++i) parts[i].layer = layer_of(*met[i]);
    LinearBase::forward_grouped(ctx, grouped_matmul_, parts.first(count), from, to, batch.lora);
  };

  const int64_t slots = std::ssize(rows.tokens);
  MatrixView<const float> shares = weights;
  const auto outer = gather(ctx, x.sub_cols(0, hidden_), rows, shares);
  const auto gate_up = ctx.make_matrix(slots, 2 * intermediate_), gated = ctx.make_matrix(slots, intermediate_);
  forward_all([](const Expert& expert) { return expert.gate_up_proj.get(); }, outer, gate_up);
  act_->forward(ctx, gate_up, gated);
  forward_all([](const Expert& expert) { return expert.down_proj.get(); }, gated, outer);
  combine_(ctx, outer, platform::place_indices<int32_t>(ctx, rows.places), shares, add, y);
}

}  // namespace choral::layers
