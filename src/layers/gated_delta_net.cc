#include "layers/gated_delta_net.h"

#include <array>
#include <numeric>

#include "platform/gather.h"

namespace choral::layers {

namespace {

// What a projection gives, block by block: so many columns of each key head, or of each value head. Where heads come in turns it
// gives all that is of one key head and its value heads, and then the next one's.
struct Block {
  bool of_values;
  int64_t width;  // of a head

  int64_t columns(int64_t keys, int64_t values) const { return width * (of_values ? values : keys); }
};
struct Outputs {
  std::string_view name;
  std::array<std::string_view, 2> members;  // the last block is the second one's
  std::vector<Block> blocks;

  int64_t columns(int64_t keys, int64_t values) const {
    int64_t total = 0;
    for (const Block& block : blocks) total += block.columns(keys, values);
    return total;
  }
};

Outputs qkvz_of(const GatedDeltaNet::Spec& spec) {
  const Block key{false, spec.key_dim}, value{true, spec.value_dim};
  return {"in_proj_qkvz", {"in_proj_qkv", "in_proj_z"}, {key, key, value, value}};
}
Outputs ba_of() { return {"in_proj_ba", {"in_proj_b", "in_proj_a"}, {{true, 1}, {true, 1}}}; }

// Columns of a rank's heads; empty: all.
std::vector<Share> own_columns(const GatedDeltaNet::Spec& spec, const HeadShare& own, const Outputs& outputs) {
  if (own.begins.empty()) return {};
  std::vector<Share> columns;
  int64_t begin = 0;
  const auto add = [&](const Share& keys, const Share& values, int64_t all_keys, int64_t all_values) {
    for (const Block& block : outputs.blocks) {
      columns.push_back((block.of_values ? values : keys).times(block.width).from(begin));
      begin += block.columns(all_keys, all_values);
    }
  };
  if (!spec.heads_in_turns) {
    add(own.groups, own.heads, spec.key_heads, spec.value_heads);
    return columns;
  }
  const int64_t of_key = spec.value_heads / spec.key_heads, turn = outputs.columns(1, of_key);
  if (own.heads.count == own.groups.count * of_key) return {own.groups.times(turn)};
  begin = own.groups.begin * turn;  // of a key head that several ranks have
  add({0, 1}, own.heads.from(-own.groups.begin * of_key), 1, of_key);
  return columns;
}

// Blocks out of turns, of the own heads.
ColumnOrder order_of(const HeadShare& own, const Outputs& outputs) {
  const int64_t keys = own.groups.count, of_key = own.heads.count / keys, turn = outputs.columns(1, of_key);
  int64_t part = 0, begin = 0;
  for (const Block& block : outputs.blocks) part = std::gcd(part, block.columns(1, of_key));
  ColumnOrder order(part, keys * turn);
  for (const Block& block : outputs.blocks) {
    for (int64_t key = 0; key < keys; ++key) order.add(key * turn + begin, block.columns(1, of_key));
    begin += block.columns(1, of_key);
  }
  return order;
}

ColumnParallelLinear::Spec turns_spec(const GatedDeltaNet::Spec& spec, const HeadShare& own, const Outputs& outputs) {
  return {.prefix = fmt::format("{}.{}", spec.prefix, outputs.name),
          .in = spec.hidden,
          .out = outputs.columns(spec.key_heads, spec.value_heads),
          .own = own_columns(spec, own, outputs)};
}

MergedColumnParallelLinear::Spec merged_spec(const GatedDeltaNet::Spec& spec, const HeadShare& own, const Outputs& outputs) {
  const int64_t second = outputs.blocks.back().columns(spec.key_heads, spec.value_heads);
  return {.prefix = fmt::format("{}.{}", spec.prefix, outputs.name),
          .in = spec.hidden,
          .members = {outputs.members.begin(), outputs.members.end()},
          .out = {outputs.columns(spec.key_heads, spec.value_heads) - second, second},
          .own = own_columns(spec, own, outputs)};
}

bool may_own(const Builder& builder, const GatedDeltaNet::Spec& spec, const HeadShare& own, const Outputs& outputs) {
  if (spec.heads_in_turns) return ColumnParallelLinear::may_own(builder, turns_spec(spec, own, outputs));
  return MergedColumnParallelLinear::may_own(builder, merged_spec(spec, own, outputs));
}

GatedDeltaNet::Projection make_projection(Builder& builder, const GatedDeltaNet::Spec& spec, const HeadShare& own,
                                          const Outputs& outputs) {
  if (!spec.heads_in_turns) {
    return {.linear = builder.make<MergedColumnParallelLinear>(merged_spec(spec, own, outputs)), .order = {}};
  }
  return {.linear = builder.make<ColumnParallelLinear>(turns_spec(spec, own, outputs)), .order = order_of(own, outputs)};
}

// The convolution's channels are qkvz's columns but for z.
StateVectors::Spec vectors_spec(const GatedDeltaNet::Spec& spec, const HeadShare& own) {
  Outputs qkv = qkvz_of(spec);
  qkv.blocks.pop_back();
  StateVectors::Spec vectors{.prefix = spec.prefix,
                             .channels = qkv.columns(spec.key_heads, spec.value_heads),
                             .taps = spec.conv_taps,
                             .heads = spec.value_heads};
  if (own.begins.empty()) return vectors;
  GatedDeltaNet::Spec in_blocks = spec;
  in_blocks.heads_in_turns = false;  // whatever the projections are
  vectors.own_channels = own_columns(in_blocks, own, qkv);
  vectors.own_heads = own.heads;
  return vectors;
}

}  // namespace

HeadShare GatedDeltaNet::own_heads(const Builder& builder, const Spec& spec) {
  return share_heads(builder.ranks, spec.value_heads, spec.key_heads, [&](const HeadShare& own) {
    return may_own(builder, spec, own, qkvz_of(spec)) && may_own(builder, spec, own, ba_of());
  });
}

GatedDeltaNet::GatedDeltaNet(Builder& builder, const Spec& spec, const HeadShare& own)
    : key_heads_(own.groups.count),
      shape_{.tail_rows = spec.conv_taps - 1,
             .channels = 2 * own.groups.count * spec.key_dim + own.heads.count * spec.value_dim,
             .heads = own.heads.count,
             .key_dim = spec.key_dim,
             .value_dim = spec.value_dim},
      value_begin_(own.heads.begin * spec.value_dim),
      begins_(column_begins(own, spec.value_dim)),
      qkvz_(make_projection(builder, spec, own, qkvz_of(spec))),
      ba_(make_projection(builder, spec, own, ba_of())),
      vectors_(builder.make<StateVectors>(vectors_spec(spec, own))),
      norm_(builder.make<RMSNorm>({.prefix = spec.prefix + ".norm", .size = spec.value_dim, .eps = spec.rms_norm_eps})),
      out_proj_(builder.make<RowParallelLinear>(
          {.prefix = spec.prefix + ".out_proj", .in = spec.value_heads * spec.value_dim, .out = spec.hidden})) {
  if (spec.out_proj_tiled && spec.value_heads != spec.key_heads) tile_out_proj(builder, spec);
}

void GatedDeltaNet::tile_out_proj(Builder& builder, const Spec& spec) {
  const int64_t dim = spec.value_dim, size = spec.value_heads * dim, of_key = spec.value_heads / spec.key_heads;
  tiles_.emplace(dim, size);
  std::vector<int32_t> order;
  for (int64_t i = 0; i < of_key; ++i) {
    for (int64_t key = 0; key < spec.key_heads; ++key) {
      const int64_t begin = (key * of_key + i) * dim;
      tiles_->add(begin, dim);
      for (int64_t column = begin; column < begin + dim; ++column) order.push_back(static_cast<int32_t>(column));
    }
  }
  if (builder.lora_targets.empty()) return;
  lora::LoRATarget& target = builder.lora_targets.back();
  target.in_order = order;
  target.base_row = [order, tiled_row = std::move(target.base_row)](int64_t row, std::span<float> out) -> Status {
    std::vector<float> tiled(out.size());
    CHORAL_RETURN_IF_ERROR(tiled_row(row, tiled));
    for (size_t i = 0; i < order.size(); ++i) out[order[i]] = tiled[i];
    return {};
  };
}

MatrixView<float> GatedDeltaNet::Projection::forward(const platform::Context& ctx, const ForwardBatch& batch,
                                                     MatrixView<const float> x) const {
  const auto y = ctx.make_matrix(x.rows, linear->out_features());
  linear->forward(ctx, x, y, batch.lora);
  if (!order) return y;
  const auto ordered = ctx.make_matrix(y.rows, y.cols);
  order->apply(ctx, y, ordered);
  return ordered;
}

kernels::DeltaRule GatedDeltaNet::rule() const {
  return {.key_heads = key_heads_,
          .value_heads = shape_.heads,
          .key_dim = shape_.key_dim,
          .value_dim = shape_.value_dim,
          .decay = vectors_->decay(),
          .dt_bias = vectors_->dt_bias()};
}

void GatedDeltaNet::forward(const platform::Context& ctx, const ForwardBatch& batch, MatrixView<const float> x, bool add,
                            MatrixView<float> y) const {
  const platform::StepMark mark(ctx);
  const auto rule = this->rule();
  const auto qkvz = qkvz_.forward(ctx, batch, x), ba = ba_.forward(ctx, batch, x);
  const auto qkv = qkvz.sub_cols(0, shape_.channels), z = qkvz.sub_cols(shape_.channels, rule.value_size());
  ctx.ops.causal_conv1d(ctx, vectors_->conv(), slots_, batch.state_runs, qkv);
  const auto whole = ctx.make_matrix(x.rows, out_proj_->in_features()), values = whole.sub_cols(value_begin_, rule.value_size());
  ctx.ops.gated_delta_rule(ctx, rule, slots_.from(shape_.tail_floats()), batch.state_runs, qkv, ba, values);
  norm_->forward_heads(ctx, values, batch.lora);
  ctx.ops.gate_rows(ctx, z, kernels::Activation::kSilu, values);
  if (!begins_.empty()) platform::gather_columns(ctx, whole, begins_);
  auto from = whole;
  if (tiles_) {
    from = ctx.make_matrix(whole.rows, whole.cols);
    tiles_->apply(ctx, whole, from);
  }
  if (add) return out_proj_->forward_add(ctx, from, y, batch.lora);
  out_proj_->forward(ctx, from, y, batch.lora);
}

}  // namespace choral::layers
