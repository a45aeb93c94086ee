#include "lora/stacked/stacked_adapters.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/log.h"
#include "platform/host_view.h"

namespace choral::lora {
namespace {

using platform::Context;

using platform::ops::ExpandSlice;
using platform::ops::kMostLoRASlices;
using platform::ops::ShrinkSlice;

platform::RowSlots row_slots(const LoRABatch& batch) {
  if (batch.is_prefill) return batch.sequences;
  return batch.indices;
}

// Every middle = x·Aᵀ.
void shrink(const Context& ctx, const LoRABatch& batch, MatrixView<const float> x, std::span<const ShrinkSlice> slices) {
  ctx.ops.lora_shrink(ctx, x, slices, row_slots(batch), 1.0F);
}

// y += middle·Bᵀ in the columns of each.
void expand(const Context& ctx, const LoRABatch& batch, std::span<const ExpandSlice> slices, MatrixView<float> y) {
  constexpr bool kAdd = true;
  ctx.ops.lora_expand(ctx, slices, row_slots(batch), kAdd, y);
}

// y += B·(A·x) of every projection that somebody touches.
void add_pairs(const Context& ctx, const LoRABatch& batch, std::span<const LoRAMemoryPool::Pair> pairs, MatrixView<const float> x,
               MatrixView<float> y) {
  const platform::StepMark mark(ctx);
  std::array<ShrinkSlice, kMostLoRASlices> shrinks;
  std::array<ExpandSlice, kMostLoRASlices> expands;
  size_t count = 0;
  const auto run = [&] {
    shrink(ctx, batch, x, std::span(shrinks).first(count));
    expand(ctx, batch, std::span(expands).first(count), y);
    count = 0;
  };
  for (const auto& pair : pairs) {
    if (pair.rank == 0) continue;
    const auto middle = ctx.make_matrix(x.rows, pair.rank);
    shrinks[count] = {LoRAMemoryPool::stack_a(pair), middle};
    expands[count] = {LoRAMemoryPool::stack_b(pair), middle, pair.at};
    if (++count == kMostLoRASlices) run();
  }
  if (count > 0) run();
}

// Calls visit(first row, count, slot) for each run of rows with a slot.
template <class Visit>
void for_each_run(const LoRABatch& batch, Visit visit) {
  const auto& runs = batch.sequences;
  for (size_t i = 0; i < runs.slots.host.size(); ++i) {
    if (runs.slots.host[i] >= 0) visit(runs.starts.host[i], runs.lengths.host[i], runs.slots.host[i]);
  }
}

}  // namespace

StackedAdapters::StackedAdapters(const Context& ctx, std::span<const LoRATarget> targets, const LoRAMemoryPoolSize& size)
    : ctx_(ctx),
      pool_(ctx, targets, size),
      memory_({size.budget_bytes > 0 ? size.budget_bytes : std::numeric_limits<int64_t>::max(), kAnyNumber}) {}

Result<std::unique_ptr<StackedAdapters>> StackedAdapters::make(const Context& ctx, std::span<const LoRATarget> targets,
                                                               const LoRAMemoryPoolSize& size, int64_t max_voices,
                                                               int64_t max_tokens, bool writes_beside) {
  std::unique_ptr<StackedAdapters> adapters(new StackedAdapters(ctx, targets, size));
  // Each slot's tenant is known beforehand: a voice that was copied finds its place in the book without new memory.
  for (int32_t slot = 0; slot < size.max_slots; ++slot) adapters->memory_.add_adapter(tenant(slot), 0);
  adapters->processor_.reserve(max_tokens);
  adapters->mapping_.reserve(max_tokens, max_voices);
  adapters->voices_.reserve(static_cast<size_t>(max_voices) + 1);
  adapters->stack_position_.reserve(static_cast<size_t>(max_voices) + 1);
  adapters->voices_.push_back(nullptr);
  CHORAL_TRY(adapters->ones_, ctx.session.keep(std::vector<float>(max_tokens, 1.0F)));
  if (!writes_beside) return adapters;
  CHORAL_TRY(auto copies, ctx.session.copies_beside());
  if (copies != nullptr) {
    CHORAL_TRY(adapters->uploads_, SlotUploads::start(std::move(copies)));
  }
  return adapters;
}

void StackedAdapters::begin_step(std::span<const LoRASegment> segments, std::span<const PackedVoice* const> voices,
                                 StepRows rows) {
  mapping_.clear();
  mapping_.is_prefill = rows.has_prefill;
  voices_.assign(1, nullptr);
  stack_position_.assign(1, kOnHost);
  look_at_device();
  if (given_up_) segments = {};
  LoRARows& mapped = mapping_.index_mapping;
  for (size_t i = 0; i < segments.size(); ++i) {
    const LoRASegment& segment = segments[i];
    mapped.runs.push_back({segment.start, segment.length, use(segment.key, voices[i])});
    CHORAL_CHECK(segment.start + segment.length <= rows.count, "a step's segments lie within its rows");
  }
  mapped.count = rows.count;
  batch_ = &processor_.prepare_batch(ctx_, mapping_, stack_position_);
}

void StackedAdapters::look_at_device() {
  if (given_up_ || platform::host_reads(ctx_.session)) return;
  const Status own = ctx_.session.computes_adapters();
  if (own.ok()) return;
  given_up_ = true;
  notes_.push_back("adapters are computed on the host from now on: " + own.message());
  CHORAL_LOG(kWarn, "{}", notes_.back());
}

int32_t StackedAdapters::use(AdapterKey key, const PackedVoice* voice) {
  const auto known = slot_of_.find(key);
  CHORAL_CHECK(known != slot_of_.end(), "a step has a voice that is not active");
  const int32_t slot = known->second;
  if (slot == kOnHost) return 0;
  if (const int32_t index = mapping_.get_index_for_lora_id(key); index != 0) return index;
  voices_.push_back(voice);
  stack_position_.push_back(slot);
  return mapping_.add_adapter(key);
}

int32_t StackedAdapters::index_of(const PackedVoice* voice) const {
  const auto found = std::find(voices_.begin() + 1, voices_.end(), voice);
  return found == voices_.end() ? 0 : static_cast<int32_t>(found - voices_.begin());
}

template <class Fits>
bool StackedAdapters::any_module(int target, const LoRABatch& batch, Fits fits) const {
  const auto& slots = batch.sequences.slots.host;
  return std::any_of(slots.begin(), slots.end(), [&](int32_t slot) {
    const auto* module = slot < 0 ? nullptr : pool_.module(slot, target);
    return module != nullptr && fits(*module);
  });
}

void StackedAdapters::add_lora_linear(const Context& ctx, int target, MatrixView<const float> x,
                                      const kernels::Epilogue& epilogue, MatrixView<float> y, BaseProduct base) const {
  lora_computation_flow(ctx, target, *batch_, x, epilogue, y, base);
}

void StackedAdapters::add_lora_linear(const Context& ctx, int target, std::span<const RowGroup> groups, MatrixView<const float> x,
                                      const kernels::Epilogue& epilogue, MatrixView<float> y, BaseProduct base) {
  const platform::StepMark mark(ctx);
  LoRARows& mapped = mapping_.prompt_mapping;
  mapped.runs.clear();
  for (const auto& group : groups) mapped.runs.push_back({group.row_begin, group.row_count, index_of(group.voice)});
  mapped.count = x.rows;
  lora_computation_flow(ctx, target, processor_.prepare_prompt_batch(ctx, mapping_, stack_position_), x, epilogue, y, base);
}

void StackedAdapters::lora_computation_flow(const Context& ctx, int target, const LoRABatch& batch, MatrixView<const float> x,
                                            const kernels::Epilogue& epilogue, MatrixView<float> y, BaseProduct base) const {
  if (!any_module(target, batch, [](const auto&) { return true; })) return base(epilogue, y);
  const platform::StepMark mark(ctx);
  const bool on_product = any_module(target, batch, [](const auto& module) { return module.on_product; });
  if (on_product && epilogue.accumulate) {
    // Added afterwards, value by value, as the product's own epilogue would: rows of others get the same bits.
    const auto product = ctx.make_matrix(y.rows, y.cols);
    kernels::Epilogue bare = epilogue;
    bare.accumulate = false;
    base(bare, product);
    change_product(ctx, target, batch, x, product);
    ctx.ops.add(ctx, product, y);
  } else {
    base(epilogue, y);
    if (on_product) change_product(ctx, target, batch, x, y);
  }
  add_pairs(ctx, batch, pool_.stacks(target).pairs, x, y);
}

void StackedAdapters::change_product(const Context& ctx, int target, const LoRABatch& batch, MatrixView<const float> x,
                                     MatrixView<float> product) const {
  for_each_run(batch, [&](int64_t begin, int64_t count, int32_t slot) {
    const auto* module = pool_.module(slot, target);
    if (module == nullptr) return;
    for (const auto& part : module->replaced) {
      ctx.ops.matmul(ctx, *part.matrix, x.sub_rows(begin, count), {},
                     product.sub_rows(begin, count).sub_cols(part.begin, part.matrix->n()));
    }
  });
  const auto& stacks = pool_.stacks(target);
  if (!stacks.factors.empty()) ctx.ops.bgmv_scale(ctx, LoRAMemoryPool::stack_of(stacks.factors), batch.indices, product);
  if (stacks.offsets.empty()) return;
  // A bias is a product with 1.
  CHORAL_CHECK(product.rows <= ones_.shape()[0], "more rows at once than a step has");
  const MatrixView<const float> ones(ones_.as<float>().data(), product.rows, 1);
  const ExpandSlice bias{LoRAMemoryPool::stack_of(stacks.offsets), ones};
  expand(ctx, batch, {&bias, 1}, product);
}

void StackedAdapters::add_lora_embedding(const Context& ctx, int target, platform::IndexArray<int32_t> ids,
                                         MatrixView<float> out) const {
  const LoRABatch& batch = *batch_;
  if (!any_module(target, batch, [](const auto&) { return true; })) return;
  const platform::StepMark mark(ctx);
  const auto& pair = pool_.stacks(target).pairs.front();
  MatrixView<float> middle;
  if (pair.rank > 0) {
    middle = ctx.make_matrix(out.rows, pair.rank);
    const ShrinkSlice zeros{LoRAMemoryPool::stack_a(pair), middle};
    shrink(ctx, batch, {ones_.as<float>().data(), out.rows, 1}, {&zeros, 1});
  }
  for_each_run(batch, [&](int64_t begin, int64_t count, int32_t slot) {
    const auto* module = pool_.module(slot, target);
    if (module == nullptr) return;
    const auto own_ids = ids.sub(begin, count);
    const auto rows = out.sub_rows(begin, count);
    if (module->table != nullptr) ctx.ops.gather_rows(ctx, *module->table, own_ids, rows);
    if (module->token_rows != nullptr) replace_tokens(ctx, *module, own_ids, rows);
    int64_t rank = 0;
    for (const auto& lookup : module->lookups) {
      if (lookup == nullptr) continue;
      ctx.ops.gather_rows(ctx, *lookup, own_ids, middle.sub_rows(begin, count).sub_cols(rank, lookup->k()));
      rank += lookup->k();
    }
  });
  if (pair.rank == 0) return;
  const ExpandSlice delta{LoRAMemoryPool::stack_b(pair), middle};
  expand(ctx, batch, {&delta, 1}, out);
}

// Runs of neighbouring rows that have a row of their own are looked up together.
void StackedAdapters::replace_tokens(const Context& ctx, const LoRAMemoryPool::Module& module, platform::IndexArray<int32_t> ids,
                                     MatrixView<float> out) const {
  const auto& own = module.token_ids;
  const auto place = ctx.kernel.scratch.make<int32_t>(ids.host.size());  // in token_rows; -1 = the base's row stays
  for (size_t i = 0; i < place.size(); ++i) {
    const auto at = std::lower_bound(own.begin(), own.end(), ids.host[i]);
    place[i] = at != own.end() && *at == ids.host[i] ? static_cast<int32_t>(at - own.begin()) : -1;
  }
  for (size_t begin = 0; begin < place.size();) {
    size_t end = begin;
    while (end < place.size() && place[end] >= 0) ++end;
    if (end > begin) {
      const auto places = platform::place_indices(ctx, std::span<const int32_t>(place.subspan(begin, end - begin)));
      ctx.ops.gather_rows(ctx, *module.token_rows, places,
                          out.sub_rows(static_cast<int64_t>(begin), static_cast<int64_t>(end - begin)));
    }
    begin = end + 1;
  }
}

}  // namespace choral::lora
