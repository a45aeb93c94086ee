// PunicaWrapper for the projection that latent attention absorbs. Its pairs are the host's on every device: no stack of slots has
// the other way round.
#include <algorithm>

#include "lora/plan/punica_wrapper.h"
#include "platform/host_view.h"

namespace choral::lora {

using kernels::HeadColumns;
using kernels::LoRATerm;

namespace {

MatrixView<const float> part_of(MatrixView<const float> m, const RowGroup& group) {
  return m.sub_rows(group.row_begin, group.row_count);
}
MatrixView<float> part_of(MatrixView<float> m, const RowGroup& group) { return m.sub_rows(group.row_begin, group.row_count); }

bool rescales(const LoRATerm& term) { return !term.matrix->output_factor().empty(); }

// to = q + Σ factor · (F·q − q) of every term, in the heads' columns.
void rescale(std::span<const LoRATerm> terms, const HeadColumns& columns, MatrixView<const float> q, MatrixView<float> to) {
  const int64_t width = q.cols / columns.heads;
  for (const LoRATerm& term : terms) {
    if (!rescales(term)) continue;
    for (int64_t i = 0; i < q.rows; ++i) {
      for (int64_t head = 0; head < columns.heads; ++head) {
        const float* factors = term.matrix->output_factor().data() + columns.of(head);
        const float* from = q.row(i) + head * width;
        float* out = to.row(i) + head * width;
        for (int64_t c = 0; c < columns.count; ++c) out[c] += term.factor * (factors[c] - 1.0F) * from[c];
      }
    }
  }
}

}  // namespace

std::span<LoRATerm> PunicaWrapper::terms_of(const platform::Context& ctx, int target, const RowGroup& group) {
  const auto terms = ctx.kernel.scratch.make<LoRATerm>(group.voice->size());
  size_t count = 0;
  for (const auto& [adapter, factor] : *group.voice) {
    const PackedModule* module = adapter->module(target);
    if (module != nullptr && module->delta) terms[count++] = {&*module->delta, nullptr, factor};
  }
  return terms.first(count);
}

void PunicaWrapper::add_lora_absorbed(const platform::Context& ctx, int target, const HeadColumns& columns,
                                      MatrixView<const float> q, MatrixView<float> y, AbsorbedProduct base) const {
  const platform::StepMark mark(ctx);
  const auto terms = ctx.kernel.scratch.make<std::span<LoRATerm>>(token_groups_.size());
  const auto items = ctx.kernel.scratch.make<kernels::LoRAAbsorb>(token_groups_.size());
  size_t count = 0;
  bool rescaled = false;
  for (size_t i = 0; i < terms.size(); ++i) {
    terms[i] = terms_of(ctx, target, token_groups_[i]);
    rescaled = rescaled || std::any_of(terms[i].begin(), terms[i].end(), rescales);
    if (!terms[i].empty()) items[count++] = {terms[i], columns, part_of(q, token_groups_[i]), part_of(y, token_groups_[i])};
  }
  if (!rescaled) {
    base(q);
  } else {
    const auto own = ctx.make_matrix(q.rows, q.cols);
    {
      const platform::HostView<const float> from(ctx, q, platform::Access::kRead);
      const platform::HostView<float> to(ctx, own, platform::Access::kWrite);
      for (int64_t row = 0; row < q.rows; ++row) std::copy_n((*from).row(row), q.cols, (*to).row(row));
      for (size_t i = 0; i < terms.size(); ++i) {
        rescale(terms[i], columns, part_of(*from, token_groups_[i]), part_of(*to, token_groups_[i]));
      }
    }
    base(own);
  }
  ctx.ops.packed_lora_absorb(ctx, items.first(count));
}

void PunicaWrapper::add_lora_heads(const platform::Context& ctx, int target, const HeadColumns& columns,
                                   MatrixView<const float> x, MatrixView<float> y, FunctionRef<void()> base) const {
  const platform::StepMark mark(ctx);
  Arena& scratch = ctx.kernel.scratch;
  size_t most_terms = 0;
  for (const auto& group : token_groups_) most_terms += group.voice->size();
  const auto shrinks = scratch.make<kernels::LoRAShrink>(most_terms * columns.heads);
  const auto expands = scratch.make<kernels::LoRAExpand>(token_groups_.size() * columns.heads);
  size_t shrink_count = 0, expand_count = 0;
  const int64_t in = x.cols / columns.heads;
  for (const auto& group : token_groups_) {
    const auto terms = terms_of(ctx, target, group);
    for (int64_t head = 0; head < columns.heads && !terms.empty(); ++head) {
      const auto own = scratch.make<LoRATerm>(terms.size());
      for (size_t t = 0; t < terms.size(); ++t) {
        const auto middle = ctx.make_matrix(group.row_count, terms[t].matrix->rank());
        own[t] = {terms[t].matrix, middle.data, terms[t].factor};
        if (middle.cols == 0) continue;  // a bias alone
        shrinks[shrink_count++] = {own[t].matrix, part_of(x, group).sub_cols(head * in, in), own[t].factor, middle};
      }
      expands[expand_count++] = {own, part_of(y, group).sub_cols(head * columns.count, columns.count), columns.of(head)};
    }
  }
  ctx.ops.packed_lora_shrink(ctx, shrinks.first(shrink_count));
  base();
  ctx.ops.packed_lora_expand(ctx, expands.first(expand_count));
}

}  // namespace choral::lora
