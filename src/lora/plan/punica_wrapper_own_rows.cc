// What adapters do beside linear layers: rows of their own in embeddings and logits, norms of their own.
#include <algorithm>
#include <array>
#include <limits>

#include "kernels/lora/lora_batch.h"
#include "kernels/quant/dequantise.h"
#include "lora/plan/punica_wrapper.h"
#include "platform/host_view.h"

namespace choral::lora {
namespace {

int64_t own_tokens_of(const PackedVoice& voice) { return voice.front().adapter->own_tokens(); }

}  // namespace

int64_t PunicaWrapper::own_tokens(int64_t row) const {
  const auto group = std::partition_point(token_groups_.begin(), token_groups_.end(),
                                          [row](const RowGroup& g) { return g.row_begin + g.row_count <= row; });
  return group == token_groups_.end() || row < group->row_begin ? 0 : own_tokens_of(*group->voice);
}

void PunicaWrapper::fill_own_logits(const platform::Context& ctx, int target, MatrixView<const float> x,
                                    std::span<const int32_t> rows, MatrixView<float> y) const {
  const platform::StepMark mark(ctx);
  for (const auto& group : row_groups(rows, ctx.kernel.scratch)) {
    const int64_t count = own_tokens_of(*group.voice);
    if (count == 0) continue;
    const auto own = y.sub_rows(group.row_begin, group.row_count).sub_cols(0, count);
    const PackedModule* module = group.voice->front().adapter->module(target);
    if (module != nullptr && module->own_rows != nullptr) {
      ctx.ops.matmul(ctx, *module->own_rows, x.sub_rows(group.row_begin, group.row_count), {}, own);
      continue;
    }
    // Tokens without a row in the head are never chosen.
    const platform::HostView<float> none(ctx, own, platform::Access::kWrite);
    for (int64_t r = 0; r < own.rows; ++r) std::fill_n((*none).row(r), count, -std::numeric_limits<float>::infinity());
  }
}

void PunicaWrapper::add_lora_embedding(const platform::Context& ctx, int target, platform::IndexArray<int32_t> token_ids,
                                       MatrixView<float> on_device) const {
  if (device_ != nullptr) device_->add_lora_embedding(ctx, target, token_ids, on_device);
  const auto ids = token_ids.host;
  const auto touches = [target](const PackedVoiceTerm& term) { return term.adapter->module(target) != nullptr; };
  for (const auto& group : host_groups()) {
    if (std::none_of(group.voice->begin(), group.voice->end(), touches)) continue;
    const platform::StepMark group_mark(ctx);
    const platform::HostView<float> rows(ctx, on_device.sub_rows(group.row_begin, group.row_count), platform::Access::kReadWrite);
    for (const auto& [adapter, factor] : *group.voice) {
      const PackedModule* module = adapter->module(target);
      if (module == nullptr) continue;
      for (int64_t i = 0; i < group.row_count; ++i) {
        const int32_t id = ids[group.row_begin + i];
        const auto out = (*rows).sub_rows(i, 1);
        const auto& own = module->token_ids;
        const auto at = std::lower_bound(own.begin(), own.end(), id);
        if (module->own_rows != nullptr && id >= module->own_begin) {
          ctx.session.fail(module->own_rows->read_row(id - module->own_begin, out.row_span(0)));
        } else if (module->table != nullptr) {
          ctx.session.fail(module->table->read_row(id, out.row_span(0)));
        }
        if (at != own.end() && *at == id) ctx.session.fail(module->token_rows->read_row(at - own.begin(), out.row_span(0)));
        if (!module->delta) continue;
        const TensorView stored = module->token_middles.view();
        if (id >= stored.rows()) continue;  // a token of its own, which the pair does not adapt
        const Arena::Mark mark(ctx.kernel.scratch);
        const int64_t rank = module->delta->rank();
        const auto middle = ctx.kernel.scratch.make<float>(rank);
        kernels::dequantise_row(stored.dtype, stored.row(id), rank, middle.data());
        for (float& value : middle) value *= factor * module->token_scale;
        const kernels::LoRATerm term{&*module->delta, middle.data(), factor};
        kernels::lora_expand(ctx.kernel.level, std::span(&term, 1), 0, out);
      }
    }
  }
}

void PunicaWrapper::for_each_norm(const platform::Context& ctx, std::span<const int> targets, int64_t rows, NormRun run) const {
  CHORAL_CHECK(targets.size() <= kNormsAtOnce, "norms are replaced one or two at once");
  const std::array<NormVectors, kNormsAtOnce> base{};
  const auto put = [&ctx](std::span<const float> own, std::span<const float>& out) {
    if (!own.empty()) out = {platform::to_device(ctx, own), own.size()};
    return !own.empty();
  };
  int64_t done = 0;
  for (const auto& group : token_groups_) {
    auto own = base;
    bool replaced = false;
    for (const auto& term : *group.voice) {
      for (size_t i = 0; i < targets.size(); ++i) {
        const PackedModule* module = term.adapter->module(targets[i]);
        if (module == nullptr) continue;
        replaced |= put(module->norm_weight, own[i].weight);
        replaced |= put(module->norm_bias, own[i].bias);
      }
    }
    if (!replaced) continue;
    if (done < group.row_begin) run(done, group.row_begin - done, base);
    run(group.row_begin, group.row_count, own);
    done = group.row_begin + group.row_count;
  }
  if (done < rows) run(done, rows - done, base);
}

}  // namespace choral::lora
