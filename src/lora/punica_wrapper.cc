#include "lora/punica_wrapper.h"

#include <algorithm>
#include <array>
#include <limits>

#include "kernels/dequantise.h"
#include "kernels/lora_batch.h"
#include "platform/host_view.h"

namespace choral::lora {
namespace {

using kernels::LoRATerm;

constexpr int64_t kSweptRows = 4;  // what one pass of the expand kernels takes

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
      for (int64_t c = at.begin; c < at.end; ++c)
        tile.row(r)[c] += part.bias_change[static_cast<size_t>(col + c - part.out_begin)];
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

bool replaces_outputs(const PackedModule& module) { return !module.replaced.empty() || module.token_rows != nullptr; }

// Panels of the product are 16 columns wide; a layer whose parts differ in format may begin one anywhere.
void expand_at_any_column(CpuLevel level, std::span<const LoRATerm> terms, int64_t col, MatrixView<float> tile) {
  const int64_t shift = col % kernels::kPanelRows;
  if (shift == 0) return kernels::lora_expand(level, terms, col, tile);
  std::array<float, 2 * kernels::kPanelRows> wide{};
  for (int64_t r = 0; r < tile.rows; ++r) {
    std::array<LoRATerm, kMaxVoiceTerms> row_terms;
    for (size_t t = 0; t < terms.size(); ++t) {
      row_terms[t] = terms[t];
      row_terms[t].middle += r * terms[t].matrix->rank();
    }
    for (int64_t c = 0; c < tile.cols;) {
      const int64_t skip = (col + c) % kernels::kPanelRows;
      const int64_t count = std::min(kernels::kPanelRows - skip, tile.cols - c);
      std::copy_n(tile.row(r) + c, count, wide.data() + skip);
      kernels::lora_expand(level, std::span(row_terms).first(terms.size()), col + c - skip, {wide.data(), 1, skip + count});
      std::copy_n(wide.data() + skip, count, tile.row(r) + c);
      c += count;
    }
  }
}

}  // namespace

PunicaWrapper::PunicaWrapper(int64_t max_num_seqs) {
  // A sequence is at most one group: an activated adapter's rows end it, base rows before them belong to no group.
  token_groups_.reserve(static_cast<size_t>(max_num_seqs));
  logits_groups_.reserve(static_cast<size_t>(max_num_seqs));
}

void PunicaWrapper::update_metadata(const LoRAMapping& mapping, std::span<const Voice* const> voices) {
  token_groups_.clear();
  const auto& slots = mapping.index_mapping;
  const auto rows = static_cast<int64_t>(slots.size());
  for (int64_t begin = 0; begin < rows;) {
    const int32_t slot = slots[static_cast<size_t>(begin)];
    int64_t end = begin + 1;
    while (end < rows && slots[static_cast<size_t>(end)] == slot) ++end;
    if (slot != 0) token_groups_.push_back({begin, end - begin, voices[static_cast<size_t>(slot)]});
    begin = end;
  }
}

std::span<const GroupShare> PunicaWrapper::add_shrink(const platform::Context& ctx, int target, int64_t out,
                                                      std::span<const RowGroup> groups, MatrixView<const float> x) const {
  size_t term_count = 0;
  for (const auto& group : groups) term_count += group.voice->size();
  Arena& scratch = ctx.kernel.scratch;
  const auto shares = scratch.make<GroupShare>(groups.size());
  const auto terms = scratch.make<LoRATerm>(term_count);
  const auto shrinks = scratch.make<kernels::LoRAShrink>(term_count);
  size_t share_count = 0, terms_made = 0, shrink_count = 0;
  for (const auto& group : groups) {
    GroupShare share{.row_begin = group.row_begin, .row_count = group.row_count};
    const size_t first_term = terms_made;
    for (const auto& [adapter, factor] : *group.voice) {
      const PackedModule* module = adapter->module(target);
      if (module == nullptr) continue;
      if (replaces_outputs(*module)) share.replacement = module;
      share.plain = share.plain && share.replacement == nullptr && (!module->delta || module->delta->is_plain());
      if (!module->delta) continue;
      const int64_t rank = module->delta->rank();
      const auto middle = ctx.make_matrix(group.row_count, rank);
      terms[terms_made++] = {&*module->delta, middle.data, factor};
      if (rank > 0) shrinks[shrink_count++] = {&*module->delta, x.sub_rows(group.row_begin, group.row_count), factor, middle};
    }
    share.terms = terms.subspan(first_term, terms_made - first_term);
    if (share.terms.empty() && share.replacement == nullptr) continue;
    shares[share_count++] = share;
  }
  ctx.ops.lora_shrink(ctx, shrinks.first(shrink_count));
  for (auto& share : shares.first(share_count)) {
    if (share.replacement != nullptr) fill_replacement(ctx, x.sub_rows(share.row_begin, share.row_count), out, share);
  }
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
    expand_at_any_column(level, std::span(terms).first(share->terms.size()), col, rows);
  }
}

void PunicaWrapper::run(const platform::Context& ctx, int target, std::span<const RowGroup> groups, MatrixView<const float> x,
                        MatrixView<float> y, BaseProduct base) const {
  if (groups.empty()) return base(nullptr, nullptr);
  const platform::StepMark mark(ctx);
  const auto shares = add_shrink(ctx, target, y.cols, groups, x);
  if (shares.empty()) return base(nullptr, nullptr);

  // Three ways, of which a share takes the one that fits. What depends on the bare product goes there. The others are added to
  // the result: in the epilogue when many rows use the same panels, which then come from the cache; in a pass of their own when
  // few do, because then reading the panels is the cost, and in one piece each they come from memory at twice the speed. Hooks
  // run on the host, so a device with memory of its own takes that way only where it must.
  const auto chosen = [&](auto fits) {
    const auto some = ctx.kernel.scratch.make<GroupShare>(shares.size());
    return some.first(static_cast<size_t>(std::copy_if(shares.begin(), shares.end(), some.begin(), fits) - some.begin()));
  };
  const int64_t most_swept = platform::host_reads(ctx.session) ? kSweptRows : std::numeric_limits<int64_t>::max();
  const auto on_product = chosen([](const GroupShare& s) { return !s.plain; });
  const auto on_result = chosen([=](const GroupShare& s) { return s.plain && s.row_count > most_swept; });
  const auto swept = chosen([=](const GroupShare& s) { return s.plain && s.row_count <= most_swept; });
  if (!platform::host_reads(ctx.session)) {
    for (auto& share : on_product) bring_to_host(ctx, share);
  }

  const auto expand_product = [&](int64_t row, int64_t col, MatrixView<float> tile) {
    add_expand(ctx.kernel.level, on_product, row, col, tile);
  };
  const auto expand_result = [&](int64_t row, int64_t col, MatrixView<float> tile) {
    add_expand(ctx.kernel.level, on_result, row, col, tile);
  };
  const Hook product_hook(expand_product), result_hook(expand_result);
  base(on_product.empty() ? nullptr : &product_hook, on_result.empty() ? nullptr : &result_hook);

  const auto expands = ctx.kernel.scratch.make<kernels::LoRAExpand>(swept.size());
  for (size_t i = 0; i < swept.size(); ++i) expands[i] = {swept[i].terms, y.sub_rows(swept[i].row_begin, swept[i].row_count)};
  ctx.ops.lora_expand(ctx, expands);
}

void PunicaWrapper::add_lora_linear(const platform::Context& ctx, int target, MatrixView<const float> x, MatrixView<float> y,
                                    BaseProduct base) const {
  run(ctx, target, token_groups_, x, y, base);
}

void PunicaWrapper::add_lora_logits(const platform::Context& ctx, int target, MatrixView<const float> x,
                                    std::span<const int32_t> rows, MatrixView<float> y, BaseProduct base) const {
  logits_groups_.clear();
  auto group = token_groups_.begin();
  for (size_t i = 0; i < rows.size(); ++i) {
    while (group != token_groups_.end() && group->row_begin + group->row_count <= rows[i]) ++group;
    if (group == token_groups_.end()) break;
    if (rows[i] < group->row_begin) continue;
    const auto row = static_cast<int64_t>(i);
    auto* last = logits_groups_.empty() ? nullptr : &logits_groups_.back();
    if (last != nullptr && last->voice == group->voice && last->row_begin + last->row_count == row) {
      ++last->row_count;
    } else {
      logits_groups_.push_back({row, 1, group->voice});
    }
  }
  run(ctx, target, logits_groups_, x, y, base);
}

void PunicaWrapper::add_lora_embedding(const platform::Context& ctx, int target, std::span<const int32_t> ids,
                                       MatrixView<float> on_device) const {
  const auto touches = [target](const VoiceTerm& term) { return term.adapter->module(target) != nullptr; };
  for (const auto& group : token_groups_) {
    if (std::none_of(group.voice->begin(), group.voice->end(), touches)) continue;
    const platform::StepMark group_mark(ctx);
    const platform::HostView<float> rows(ctx, on_device.sub_rows(group.row_begin, group.row_count), platform::Access::kReadWrite);
    for (const auto& [adapter, factor] : *group.voice) {
      const PackedModule* module = adapter->module(target);
      if (module == nullptr) continue;
      for (int64_t i = 0; i < group.row_count; ++i) {
        const int32_t id = ids[static_cast<size_t>(group.row_begin + i)];
        const auto out = (*rows).sub_rows(i, 1);
        const auto& own = module->token_ids;
        const auto at = std::lower_bound(own.begin(), own.end(), id);
        if (module->table != nullptr) module->table->read_row(id, out.row_span(0));
        if (at != own.end() && *at == id) module->token_rows->read_row(at - own.begin(), out.row_span(0));
        if (!module->delta) continue;
        const Arena::Mark mark(ctx.kernel.scratch);
        const int64_t rank = module->delta->rank();
        const auto middle = ctx.kernel.scratch.make<float>(static_cast<size_t>(rank));
        const TensorView stored = module->token_middles.view();
        kernels::dequantise_row(stored.dtype, stored.row(id), rank, middle.data());
        for (float& value : middle) value *= factor * module->token_scale;
        const LoRATerm term{&*module->delta, middle.data(), factor};
        kernels::lora_expand(ctx.kernel.level, std::span(&term, 1), 0, out);
      }
    }
  }
}

bool PunicaWrapper::replaces_norm(int target) const {
  for (const auto& group : token_groups_) {
    for (const auto& term : *group.voice) {
      const PackedModule* module = term.adapter->module(target);
      if (module != nullptr && !module->norm_weight.empty()) return true;
    }
  }
  return false;
}

void PunicaWrapper::for_each_norm(const platform::Context& ctx, int target, int64_t rows, NormRun run) const {
  int64_t done = 0;
  for (const auto& group : token_groups_) {
    for (const auto& term : *group.voice) {
      const PackedModule* module = term.adapter->module(target);
      if (module == nullptr || module->norm_weight.empty()) continue;
      if (done < group.row_begin) run(done, group.row_begin - done, {});
      const std::span<const float> weight = module->norm_weight;
      run(group.row_begin, group.row_count, {platform::to_device(ctx, weight), weight.size()});
      done = group.row_begin + group.row_count;
    }
  }
  if (done < rows) run(done, rows - done, {});
}

}  // namespace choral::lora
