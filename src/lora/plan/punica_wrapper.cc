#include "lora/plan/punica_wrapper.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>

#include "kernels/lora/lora_batch.h"
#include "kernels/lora/lora_companion.h"
#include "lora/plan/divided_shrinks.h"
#include "platform/host_view.h"

namespace choral::lora {
namespace {

using kernels::LoRATerm;

constexpr int64_t kRowsAlong = 4;  // what one pass of the expand kernels takes

// The columns of [col, col + cols) that lie in [begin, begin + count), as a range of the tile.
struct Overlap {
  int64_t begin, end;
};
Overlap overlap(int64_t begin, int64_t count, int64_t col, int64_t cols) {
  return {std::max(begin, col) - col, std::min(begin + count, col + cols) - col};
}

void replace_columns(const GroupShare& share, int64_t first, int64_t col, MatrixView<float> tile) {
  for (const auto& part : share.replacement->replaced) {
    const Overlap at = overlap(part.out_begin, part.matrix->n(), col, tile.cols);
    if (at.begin >= at.end) continue;
    for (int64_t r = 0; r < tile.rows; ++r) {
      const float* values = share.values.row(first + r) + col;
      std::copy(values + at.begin, values + at.end, tile.row(r) + at.begin);
      if (part.bias_change.empty()) continue;
      for (int64_t c = at.begin; c < at.end; ++c) tile.row(r)[c] += part.bias_change[col + c - part.out_begin];
    }
  }
  const auto& ids = share.replacement->token_ids;
  for (auto id = std::lower_bound(ids.begin(), ids.end(), col); id != ids.end() && *id < col + tile.cols; ++id) {
    for (int64_t r = 0; r < tile.rows; ++r) tile.row(r)[*id - col] = share.token_values.row(first + r)[id - ids.begin()];
  }
}

// The whole product of replaced columns of a group's rows.
void fill_replacement(const platform::Context& ctx, MatrixView<const float> x, int64_t out, GroupShare& share) {
  const PackedModule& module = *share.replacement;
  if (!module.replaced.empty()) share.values = ctx.make_matrix(share.row_count, out);
  for (const auto& part : module.replaced) {
    ctx.ops.matmul(ctx, *part.matrix, x, {}, share.values.sub_cols(part.out_begin, part.matrix->n()));
  }
  if (module.token_rows != nullptr) {
    share.token_values = ctx.make_matrix(share.row_count, module.token_rows->n());
    ctx.ops.matmul(ctx, *module.token_rows, x, {}, share.token_values);
  }
}

// What the share's hook reads, copied from the device until the StepMark.
void bring_to_host(const platform::Context& ctx, GroupShare& share) {
  const auto terms = ctx.kernel.scratch.make<LoRATerm>(share.terms.size());
  for (size_t t = 0; t < terms.size(); ++t) {
    terms[t] = share.terms[t];
    terms[t].middle = platform::host_copy(ctx, {terms[t].middle, share.row_count, terms[t].matrix->rank()}).data;
  }
  share.terms = terms;
  share.values = platform::host_copy(ctx, share.values);
  share.token_values = platform::host_copy(ctx, share.token_values);
}

// Calls run(target's rows, group) for each group.
template <class Targets, class Run>
void for_each_group(const Targets& targets, Run run) {
  for (const auto& rows : targets) {
    for (const RowGroup& group : rows.groups) run(rows, group);
  }
}

// Runs the shrinks of all shares; divided: of a layer whose outputs ranks divide, each rank some.
template <class Shares>
void run_shrinks(const platform::Context& ctx, const Shares& shares, bool divided = false) {
  size_t count = 0;
  for (const auto& share : shares) count += share.shrinks.size();
  const auto shrinks = ctx.kernel.scratch.make<kernels::LoRAShrink>(count);
  auto next = shrinks.begin();
  const auto has_rank = [](const kernels::LoRAShrink& s) { return s.matrix->rank() > 0; };
  for (const auto& share : shares) next = std::copy_if(share.shrinks.begin(), share.shrinks.end(), next, has_rank);
  const auto all = shrinks.first(next - shrinks.begin());
  if (divided) return run_divided_shrinks(ctx, all);
  ctx.ops.packed_lora_shrink(ctx, all);
}

// Makes the values of replaced columns.
void fill_replacements(const platform::Context& ctx, MatrixView<const float> x, int64_t out, std::span<GroupShare> shares) {
  for (auto& share : shares) {
    if (share.replacement != nullptr) fill_replacement(ctx, x.sub_rows(share.row_begin, share.row_count), out, share);
  }
}

// Calls run(first of the layer's outputs, these columns of y) for what columns of y, `col` of what is computed first, are.
template <class Run>
void for_each_held(std::span<const HeldColumns> held, int64_t col, MatrixView<float> y, Run run) {
  if (held.empty()) return run(col, y);
  for (const auto& [of, at, count] : held) {
    const Overlap own = overlap(at, count, col, y.cols);
    if (own.begin < own.end) run(of + col + own.begin - at, y.sub_cols(own.begin, own.end - own.begin));
  }
}

// Adds the shares, whose middles are there, to the finished product in a pass of its own.
void add_pass(const platform::Context& ctx, std::span<const kernels::LoRAShare> shares, std::span<const HeldColumns> held) {
  const auto expands = ctx.kernel.scratch.make<kernels::LoRAExpand>(shares.size() * std::max<size_t>(held.size(), 1));
  auto next = expands.begin();
  for (const auto& [shrinks, expand] : shares) {
    for_each_held(held, expand.col, expand.y, [&, terms = expand.terms](int64_t of, MatrixView<float> columns) {
      *next++ = {terms, columns, of};
    });
  }
  ctx.ops.packed_lora_expand(ctx, expands.first(next - expands.begin()));
}

// The base product, and the shares as far as it lets them go along; then the rest of them.
void run_along(const platform::Context& ctx, std::span<const kernels::LoRAShare> shares, kernels::Epilogue wanted,
               MatrixView<float> y, PunicaWrapper::BaseProduct base) {
  kernels::LoRACompanion companion(ctx.kernel, shares);
  wanted.companion = &companion;
  base(wanted, y);
  companion.finish();
  const auto left = ctx.kernel.scratch.make<kernels::LoRAShare>(shares.size());
  size_t count = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    if (!companion.was_begun(static_cast<int64_t>(i))) left[count++] = shares[i];
  }
  if (count == 0) return;
  run_shrinks(ctx, left.first(count));
  add_pass(ctx, left.first(count), {});
}

// A voice that has any is of one adapter.
bool replaces_outputs(const PackedModule& module) { return !module.replaced.empty() || module.token_rows != nullptr; }

}  // namespace

PunicaWrapper::PunicaWrapper(int64_t max_num_seqs, bool fully_sharded) : fully_sharded_(fully_sharded) {
  // A sequence is at most one group: an activated adapter's rows end it, base rows before them belong to no group.
  token_groups_.reserve(max_num_seqs);
  host_groups_.reserve(max_num_seqs);
}

void PunicaWrapper::update_metadata(std::span<const LoRASegment> segments, std::span<const PackedVoice* const> voices,
                                    StepRows rows) {
  CHORAL_CHECK(segments.size() == voices.size(), "each segment has one voice");
  token_groups_.clear();
  int64_t end = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    const auto& [start, length, key] = segments[i];
    CHORAL_CHECK(start >= end && length > 0 && voices[i] != nullptr,
                 "segments of adapters ascend, share no row and have a voice");
    token_groups_.push_back({start, length, voices[i]});
    end = start + length;
  }
  if (device_ == nullptr) return;
  device_->begin_step(segments, voices, rows);
  host_groups_.clear();
  for (const auto& group : token_groups_) {
    if (!device_->serves(group.voice)) host_groups_.push_back(group);
  }
}

std::span<const RowGroup> PunicaWrapper::row_groups(std::span<const int32_t> rows, Arena& scratch) const {
  const auto groups = scratch.make<RowGroup>(rows.size());
  size_t count = 0;
  auto at = token_groups_.begin();  // neighbours mostly come from one group
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t row = rows[i];
    if (at == token_groups_.end() || row < at->row_begin || row >= at->row_begin + at->row_count) {
      at = std::partition_point(token_groups_.begin(), token_groups_.end(),
                                [row](const RowGroup& g) { return g.row_begin + g.row_count <= row; });
    }
    if (at == token_groups_.end() || row < at->row_begin) continue;
    const auto place = static_cast<int64_t>(i);
    if (count > 0) {
      RowGroup& last = groups[count - 1];
      if (last.voice == at->voice && last.row_begin + last.row_count == place) {
        ++last.row_count;
        continue;
      }
    }
    groups[count++] = {place, 1, at->voice};
  }
  return groups.first(count);
}

std::span<GroupShare> PunicaWrapper::plan(const platform::Context& ctx, std::span<const TargetRows> targets,
                                          MatrixView<const float> x) {
  size_t group_count = 0, term_count = 0;
  for_each_group(targets, [&](const TargetRows&, const RowGroup& group) {
    ++group_count;
    term_count += group.voice->size();
  });
  Arena& scratch = ctx.kernel.scratch;
  const auto shares = scratch.make<GroupShare>(group_count);
  const auto terms = scratch.make<LoRATerm>(term_count);
  const auto shrinks = scratch.make<kernels::LoRAShrink>(term_count);
  size_t share_count = 0, terms_made = 0, shrinks_made = 0;
  for_each_group(targets, [&](const TargetRows& rows, const RowGroup& group) {
    const int target = rows.target;
    GroupShare share{.row_begin = rows.row_begin + group.row_begin, .row_count = group.row_count};
    const size_t first_term = terms_made, first_shrink = shrinks_made;
    for (const auto& [adapter, factor] : *group.voice) {
      const PackedModule* module = adapter->module(target);
      adapter->prefetch_module(target + 1);  // mostly the next that is asked for
      if (module == nullptr) continue;
      if (replaces_outputs(*module)) share.replacement = module;
      share.plain = share.plain && share.replacement == nullptr && (!module->delta || module->delta->is_plain());
      if (!module->delta) continue;
      const int64_t rank = module->delta->rank();
      const auto middle = ctx.make_matrix(group.row_count, rank);
      terms[terms_made++] = {&*module->delta, middle.data, factor};
      shrinks[shrinks_made++] = {&*module->delta, x.sub_rows(share.row_begin, share.row_count), factor, middle};
    }
    share.shrinks = shrinks.subspan(first_shrink, shrinks_made - first_shrink);
    share.terms = terms.subspan(first_term, terms_made - first_term);
    if (!share.terms.empty() || share.replacement != nullptr) shares[share_count++] = share;
  });
  return shares.first(share_count);
}

void PunicaWrapper::add_expand(CpuLevel level, std::span<const GroupShare> shares, int64_t row, int64_t col,
                               MatrixView<float> tile) {
  // The first share that ends after the tile's first row.
  auto share =
      std::partition_point(shares.begin(), shares.end(), [row](const GroupShare& s) { return s.row_begin + s.row_count <= row; });
  for (; share != shares.end() && share->row_begin < row + tile.rows; ++share) {
    const int64_t begin = std::max(row, share->row_begin);
    const int64_t end = std::min(row + tile.rows, share->row_begin + share->row_count);
    const auto rows = tile.sub_rows(begin - row, end - begin);
    const int64_t first = begin - share->row_begin;
    if (share->replacement != nullptr) replace_columns(*share, first, col, rows);
    if (share->terms.empty()) continue;
    std::array<LoRATerm, kMaxVoiceTerms> terms;
    for (size_t t = 0; t < share->terms.size(); ++t) {
      terms[t] = share->terms[t];
      terms[t].middle += first * terms[t].matrix->rank();
    }
    kernels::lora_expand(level, std::span(terms).first(share->terms.size()), col, rows);
  }
}

void PunicaWrapper::add_on_host(const platform::Context& ctx, std::span<const TargetRows> targets, MatrixView<const float> x,
                                kernels::Epilogue wanted, const LayerOutput& out, BaseProduct base) const {
  const MatrixView<float>& y = out.y;
  const platform::StepMark mark(ctx);
  const auto shares = plan(ctx, targets, x);
  if (shares.empty()) return base(wanted, y);

  // Three ways, of which a share takes the one that fits. What depends on the bare product goes there. The others are added to
  // the result: in the epilogue when many rows use the same panels, which then come from the cache; when few do, reading the
  // panels is the cost, and they are read along with the product; a product of several layers has too few rows each to take them
  // along. Hooks and companion run on the host, so a device with memory of its own takes those ways only where it must.
  const auto chosen = [&](auto fits) {
    const auto some = ctx.kernel.scratch.make<GroupShare>(shares.size());
    return some.first(std::copy_if(shares.begin(), shares.end(), some.begin(), fits) - some.begin());
  };
  const bool on_host = platform::host_reads(ctx.session);
  const int64_t most_along = on_host ? kRowsAlong : std::numeric_limits<int64_t>::max();
  const auto on_product = chosen([](const GroupShare& s) { return !s.plain; });
  const auto on_result = chosen([=](const GroupShare& s) { return s.plain && s.row_count > most_along; });
  const auto goes_along = [=](const GroupShare& s) { return s.plain && s.row_count <= most_along; };
  const auto along = chosen(goes_along);
  const bool divided = fully_sharded_ && !out.held.empty();
  run_shrinks(ctx, divided ? shares : chosen(std::not_fn(goes_along)), divided);
  fill_replacements(ctx, x, out.outputs, on_product);
  if (!on_host) {
    for (auto& share : on_product) bring_to_host(ctx, share);
  }

  const auto expand_by = [&](std::span<const GroupShare> group_shares) {
    return [&, group_shares](int64_t row, int64_t col, MatrixView<float> tile) {
      for_each_held(out.held, col, tile,
                    [&](int64_t of, MatrixView<float> columns) { add_expand(ctx.kernel.level, group_shares, row, of, columns); });
    };
  };
  const auto expand_product = expand_by(on_product), expand_result = expand_by(on_result);
  const kernels::Epilogue::Hook product_hook(expand_product), result_hook(expand_result);
  if (!on_product.empty()) wanted.product_hook = &product_hook;
  if (!on_result.empty()) wanted.result_hook = &result_hook;
  const auto work = ctx.kernel.scratch.make<kernels::LoRAShare>(along.size());
  for (size_t i = 0; i < along.size(); ++i) {
    work[i] = {along[i].shrinks, {along[i].terms, y.sub_rows(along[i].row_begin, along[i].row_count)}};
  }
  if (on_host && !work.empty() && targets.size() == 1 && out.held.empty()) return run_along(ctx, work, wanted, y, base);
  base(wanted, y);
  if (work.empty()) return;
  if (!divided) run_shrinks(ctx, work);
  add_pass(ctx, work, out.held);
}

void PunicaWrapper::add_lora_linear(const platform::Context& ctx, int target, MatrixView<const float> x, bool add,
                                    const LayerOutput& out, BaseProduct base) const {
  kernels::Epilogue wanted;
  wanted.accumulate = add;
  const TargetRows rows{target, 0, host_groups()};
  if (device_ == nullptr) return add_on_host(ctx, {&rows, 1}, x, wanted, out, base);
  add_on_host(ctx, {&rows, 1}, x, wanted, out, [&](const kernels::Epilogue& epilogue, MatrixView<float> to) {
    device_->add_lora_linear(ctx, target, x, epilogue, to, base);
  });
}

void PunicaWrapper::add_lora_linear(const platform::Context& ctx, int target, std::span<const RowGroup> groups,
                                    MatrixView<const float> x, bool add, const LayerOutput& out, BaseProduct base) const {
  kernels::Epilogue wanted;
  wanted.accumulate = add;
  TargetRows rows{target, 0, groups};
  if (device_ == nullptr) return add_on_host(ctx, {&rows, 1}, x, wanted, out, base);
  const platform::StepMark mark(ctx);
  const auto left = ctx.kernel.scratch.make<RowGroup>(groups.size());
  const auto end = std::copy_if(groups.begin(), groups.end(), left.begin(),
                                [this](const RowGroup& group) { return !device_->serves(group.voice); });
  rows.groups = left.first(end - left.begin());
  add_on_host(ctx, {&rows, 1}, x, wanted, out, [&](const kernels::Epilogue& epilogue, MatrixView<float> to) {
    device_->add_lora_linear(ctx, target, groups, x, epilogue, to, base);
  });
}

void PunicaWrapper::add_lora_grouped(const platform::Context& ctx, std::span<const TargetRows> targets, MatrixView<const float> x,
                                     const LayerOutput& out, BaseProduct base) const {
  CHORAL_CHECK(device_ == nullptr, "a device that computes adapters takes one layer after the other");
  add_on_host(ctx, targets, x, {}, out, base);
}

void PunicaWrapper::add_lora_logits(const platform::Context& ctx, int target, MatrixView<const float> x,
                                    std::span<const int32_t> rows, const LayerOutput& out, BaseProduct base) const {
  const platform::StepMark mark(ctx);
  add_lora_linear(ctx, target, row_groups(rows, ctx.kernel.scratch), x, false, out, base);
}

}  // namespace choral::lora
