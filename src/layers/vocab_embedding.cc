#include "layers/vocab_embedding.h"

#include <algorithm>

#include "platform/gather.h"
#include "platform/host_view.h"

namespace choral::layers {
namespace {

quant::LinearShape table_shape(const VocabParallelEmbedding::Spec& spec) {
  return {.in = spec.hidden, .out = {spec.vocab}, .shard_names = {spec.prefix}, .bias = spec.bias};
}

}  // namespace

VocabParallelEmbedding::VocabParallelEmbedding(Builder& builder, const Spec& spec)
    : LinearBase(builder, quant::LayerKind::kEmbedding, spec.prefix, table_shape(spec), Division::kByRows),
      CustomOp(kLayerName, builder.custom_ops, builder.session),
      lora_target_(builder.add_lora_target(lora_target(lora::TargetKind::kEmbedding, spec.prefix))) {}

void VocabParallelEmbedding::lookup(const platform::Context& ctx, platform::IndexArray<int32_t> ids, MatrixView<float> out,
                                    const lora::PunicaWrapper* lora) const {
  const platform::StepMark mark(ctx);
  look_up_base(ctx, base_ids(ctx, ids), out);
  if (!begins().empty()) platform::gather_rows(ctx, out, [&](int64_t row) { return owner_of(ids.host[row]); });
  if (lora != nullptr) lora->add_lora_embedding(ctx, lora_target_, ids, out);
}

bool VocabParallelEmbedding::holds(int32_t id) const {
  return begins().empty() ? id < out_features() : id >= held().front().of && id < held().front().of + held().front().count;
}

// Of a token that an adapter brings: anybody.
int VocabParallelEmbedding::owner_of(int32_t id) const {
  if (id >= begins().back()) return 0;
  return static_cast<int>(std::upper_bound(begins().begin(), begins().end(), id) - begins().begin()) - 1;
}

// Tokens that adapters bring, or other ranks have, have no row here: any row stands where theirs will.
platform::IndexArray<int32_t> VocabParallelEmbedding::base_ids(const platform::Context& ctx,
                                                               platform::IndexArray<int32_t> ids) const {
  const int32_t first = held().empty() ? 0 : static_cast<int32_t>(held().front().of);
  if (first == 0 && std::all_of(ids.host.begin(), ids.host.end(), [this](int32_t id) { return holds(id); })) return ids;
  const auto safe = ctx.kernel.scratch.make<int32_t>(ids.host.size());
  std::transform(ids.host.begin(), ids.host.end(), safe.begin(), [&](int32_t id) { return holds(id) ? id - first : 0; });
  return platform::place_indices(ctx, std::span<const int32_t>(safe));
}

void VocabParallelEmbedding::look_up_base(const platform::Context& ctx, platform::IndexArray<int32_t> ids,
                                          MatrixView<float> out) const {
  if (form() == platform::OpForm::kNative) {
    const platform::HostView<float> rows(ctx, out, platform::Access::kWrite);
    for (int64_t i = 0; i < ids.size(); ++i) {
      ctx.session.fail(quant_method().read_row(ids.host[i], (*rows).row_span(i)));
    }
  } else {
    quant_method().gather_rows(ctx, ids, out);
  }
}

ParallelLMHead::ParallelLMHead(Builder& builder, const Spec& spec)
    : LinearBase(builder, quant::LayerKind::kLmHead, spec.prefix, table_shape(spec), Division::kByRows) {}

LogitsProcessor::LogitsProcessor(Builder& builder, const Spec& spec)
    : CustomOp(kLayerName, builder.custom_ops, builder.session),
      head_(spec.head),
      scale_(spec.scale),
      softcap_(spec.softcap),
      take_rows_(bind<platform::ops::TakeRows>()),
      scale_by_(bind<platform::ops::Scale>()),
      soft_cap_(bind<platform::ops::SoftCap>()) {
  auto target = head_.lora_target(lora::TargetKind::kHead, spec.name);
  if (target.name != head_.prefix()) target.tied_to = head_.prefix();
  lora_target_ = builder.add_lora_target(std::move(target));
}

void LogitsProcessor::forward(const platform::Context& ctx, MatrixView<const float> hidden, std::span<const int32_t> rows,
                              MatrixView<float> logits, const lora::PunicaWrapper* lora) const {
  const platform::StepMark mark(ctx);
  auto wanted = hidden;
  if (std::ssize(rows) != hidden.rows) {  // else every row, in order
    const auto taken = ctx.make_matrix(std::ssize(rows), hidden.cols);
    take_rows_(ctx, hidden, platform::place_indices(ctx, rows), taken);
    wanted = taken;
  }
  multiply(ctx, wanted, rows, logits, lora);
  if (scale_ != 1) scale_by_(ctx, logits, scale_);
  if (softcap_ > 0) soft_cap_(ctx, logits, softcap_);
}

void LogitsProcessor::multiply(const platform::Context& ctx, MatrixView<const float> hidden, std::span<const int32_t> rows,
                               MatrixView<float> logits, const lora::PunicaWrapper* lora) const {
  if (lora == nullptr) return head_.forward(ctx, hidden, logits);
  const int64_t vocab = head_.out_features();
  if (logits.cols > vocab) {
    lora->fill_own_logits(ctx, lora_target_, hidden, rows, logits.sub_cols(vocab, logits.cols - vocab));
    logits = logits.sub_cols(0, vocab);
  }
  const lora::LayerOutput out(head_.own_columns(logits), head_.held(), vocab);
  lora->add_lora_logits(ctx, lora_target_, hidden, rows, out, [&](const kernels::Epilogue& wanted, MatrixView<float> to) {
    head_.quant_method().apply(ctx, hidden, wanted, to);
  });
  head_.gather(ctx, logits);
}

}  // namespace choral::layers
