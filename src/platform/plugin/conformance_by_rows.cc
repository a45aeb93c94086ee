#include "platform/plugin/conformance_by_rows.h"

#include "base/check.h"

namespace choral::platform {
namespace {

template <class T>
IndexArray<T> one(const Context& ctx, T value) {
  const auto host = ctx.kernel.scratch.make<T>(1);
  host[0] = value;
  return place_indices(ctx, std::span<const T>(host));
}

}  // namespace

SlotSequences RowOf::operator()(const SlotSequences& sequences) const {
  int64_t s = 0;
  while (index >= sequences.starts.host[s] + sequences.lengths.host[s]) ++s;
  return {.starts = one(ctx, 0), .lengths = one(ctx, 1), .slots = sequences.slots.sub(s, 1), .max_length = 1, .rows = 1};
}

SequenceBatch RowOf::operator()(const SequenceBatch& sequences) const {
  for (const kernels::AttentionSequence& sequence : sequences.host) {
    const int64_t query = index - sequence.query_begin;
    if (query < 0 || query >= sequence.query_count) continue;
    const auto own = ctx.kernel.scratch.make<kernels::AttentionSequence>(1);
    own[0] = {.query_begin = 0,
              .query_count = 1,
              .context_tokens = sequence.context_tokens + query,
              .block_table = sequence.block_table};
    return ctx.session.place_sequences(own);
  }
  CHORAL_CHECK(false, "every row of a test belongs to a sequence");
}

SamplingBatch RowOf::operator()(const SamplingBatch& batch) const {
  SamplingBatch own = batch;
  own.rows = batch.rows.sub(index, 1);
  own.choices = batch.choices.subspan(index, 1);
  return own;
}

void run_by_rows(const Context& ctx, void (*run)(const Context&, std::span<const kernels::GroupProduct>),
                 std::span<const kernels::GroupProduct> products) {
  for (const kernels::GroupProduct& product : products) {
    for (int64_t i = 0; i < product.y.rows; ++i) {
      kernels::GroupProduct row = product;
      row.x = product.x.sub_rows(i, 1);
      row.y = product.y.sub_rows(i, 1);
      run(ctx, std::span<const kernels::GroupProduct>(&row, 1));
    }
  }
}

}  // namespace choral::platform
