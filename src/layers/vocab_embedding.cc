#include "layers/vocab_embedding.h"

namespace choral::layers {
namespace {

quant::LinearShape table_shape(const std::string& prefix, int64_t vocab, int64_t hidden) {
  return {.in = hidden, .out = {vocab}, .shard_names = {prefix}, .bias = false};
}

}  // namespace

VocabParallelEmbedding::VocabParallelEmbedding(Builder& builder, const std::string& prefix, int64_t vocab, int64_t hidden)
    : LinearBase(builder, quant::LayerKind::kEmbedding, prefix, table_shape(prefix, vocab, hidden)) {}

ParallelLMHead::ParallelLMHead(Builder& builder, const std::string& prefix, int64_t vocab, int64_t hidden)
    : LinearBase(builder, quant::LayerKind::kLmHead, prefix, table_shape(prefix, vocab, hidden)) {}

void LogitsProcessor::forward(const platform::Context& ctx, MatrixView<const float> hidden, std::span<const int32_t> rows,
                              MatrixView<float> logits) const {
  if (static_cast<int64_t>(rows.size()) == hidden.rows) return head_.forward(ctx, hidden, logits);  // every row, in order
  const Arena::Mark mark(ctx.arena());
  const auto wanted = ctx.make_matrix(static_cast<int64_t>(rows.size()), hidden.cols);
  ctx.ops.take_rows(ctx, hidden, rows, wanted);
  head_.forward(ctx, wanted, logits);
}

}  // namespace choral::layers
