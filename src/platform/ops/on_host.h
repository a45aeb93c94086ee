// An argument of an operator as the host's form of it takes it, for a device whose memory the host can't read: a copy that comes
// before and goes back when the call is over, or the thing itself. A matter of the argument's type alone.
#pragma once

#include <type_traits>

#include "platform/host_view.h"
#include "platform/ops/arguments.h"

namespace choral::platform {

// What the host reads where it is: numbers, what was packed for the host, the cache that it keeps, what lies on both sides.
template <class T>
constexpr bool kIsTheHosts =
    std::is_arithmetic_v<T> || std::is_same_v<T, ops::PackedMatrix> || std::is_same_v<T, ops::Epilogue> ||
    std::is_same_v<T, ops::KvCacheView> || std::is_same_v<T, ops::AttentionParams> || std::is_same_v<T, ops::ClampedSwiglu> ||
    std::is_same_v<T, ops::PositionScale> || std::is_same_v<T, kernels::MoeGating> || std::is_same_v<T, MatrixView<int32_t>> ||
    std::is_same_v<T, ops::Indices> || std::is_same_v<T, ops::Slots> || std::is_same_v<T, SequenceBatch> ||
    std::is_same_v<T, SlotSequences> || std::is_same_v<T, PlacedRotary> || std::is_same_v<T, kernels::Activation> ||
    std::is_same_v<T, kernels::CausalConv> || std::is_same_v<T, kernels::DeltaRule> ||
    std::is_same_v<T, kernels::SelectiveScan> || std::is_same_v<T, kernels::StateView> || std::is_same_v<T, ops::Runs>;

// An argument as the host's operator takes it.
template <class T>
struct OnHost {
  static_assert(kIsTheHosts<T>, "this type of argument does not say how it is staged: a copy (OnHost<T>), or kIsTheHosts?");
  OnHost(const Context&, const T& value) : value_(value) {}
  const T& operator*() const { return value_; }
  const T& value_;
};
template <>
struct OnHost<MatrixView<const float>> : HostView<const float> {
  OnHost(const Context& ctx, MatrixView<const float> m) : HostView(ctx, m, Access::kRead) {}
};
template <>
struct OnHost<MatrixView<float>> : HostView<float> {
  OnHost(const Context& ctx, MatrixView<float> m) : HostView(ctx, m, Access::kReadWrite) {}
};
template <>
struct OnHost<std::span<const float>> {
  OnHost(const Context& ctx, std::span<const float> v) : view_(ctx, {v.data(), 1, std::ssize(v)}, Access::kRead) {}
  std::span<const float> operator*() const { return (*view_).row_span(0); }
  HostView<const float> view_;
};

// What rows are sampled by lies on both sides; what comes of them goes back.
template <>
struct OnHost<SamplingBatch> {
  OnHost(const Context& ctx, const SamplingBatch& batch) : ctx_(ctx), device_(batch), host_(batch) {
    if (host_reads(ctx.session)) return;
    host_.choices = ctx.kernel.scratch.make<kernels::RowChoice>(batch.choices.size());
    host_.top = ctx.kernel.scratch.make<kernels::TokenLogprob>(batch.top.size());
  }
  ~OnHost() {
    if (host_reads(ctx_.session)) return;
    copy_to_device(ctx_.session, std::as_bytes(host_.choices), std::as_writable_bytes(device_.choices).data());
    copy_to_device(ctx_.session, std::as_bytes(host_.top), std::as_writable_bytes(device_.top).data());
  }
  const SamplingBatch& operator*() const { return host_; }

  const Context& ctx_;
  const SamplingBatch& device_;
  SamplingBatch host_;
};

// All slots travel, since indices stay as they are. That is for a single call: adapters are the host's from the next step on.
template <>
struct OnHost<ops::Stack> {
  OnHost(const Context& ctx, const ops::Stack& stack) : host_(stack) {
    const int64_t bytes = stack.count * stack.rows * stack.row_bytes;
    if (bytes == 0 || ctx.session.reach_memory(true)) return;
    std::byte* copy = ctx.kernel.scratch.make<std::byte>(bytes).data();
    ctx.session.copy(CopyKind::kToHost, copy, bytes, stack.data, bytes, bytes, 1);
    host_.data = copy;
  }
  const ops::Stack& operator*() const { return host_; }
  ops::Stack host_;
};

// What adapters add: each item's matrices travel, its packed panels are the host's.
template <>
struct OnHost<std::span<const kernels::LoRAShrink>> {
  OnHost(const Context& ctx, std::span<const kernels::LoRAShrink> items) : ctx_(ctx), device_(items) {
    host_ = ctx.kernel.scratch.make<kernels::LoRAShrink>(items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      const HostView<const float> x(ctx, items[i].x, Access::kRead);
      float* middle = ctx.kernel.scratch.make<float>(items[i].middle.rows * items[i].middle.cols).data();
      host_[i] = items[i];
      host_[i].x = *x;
      host_[i].middle = {middle, items[i].middle.rows, items[i].middle.cols};
    }
  }
  ~OnHost() {
    const auto made = [](const kernels::LoRAShrink& s) { return s.middle.sub_cols(s.first_rank, s.ranks()); };
    for (size_t i = 0; i < device_.size(); ++i) copy_to_device(ctx_, made(host_[i]), made(device_[i]));
  }
  std::span<const kernels::LoRAShrink> operator*() const { return host_; }

  const Context& ctx_;
  std::span<const kernels::LoRAShrink> device_;
  std::span<kernels::LoRAShrink> host_;
};
template <>
struct OnHost<std::span<const kernels::LoRAExpand>> {
  OnHost(const Context& ctx, std::span<const kernels::LoRAExpand> items) : ctx_(ctx), device_(items) {
    host_ = ctx.kernel.scratch.make<kernels::LoRAExpand>(items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      const HostView<const float> y(ctx, items[i].y, Access::kRead);
      const auto terms = ctx.kernel.scratch.make<kernels::LoRATerm>(items[i].terms.size());
      for (size_t t = 0; t < terms.size(); ++t) {
        terms[t] = items[i].terms[t];
        const HostView<const float> middle(ctx, {terms[t].middle, items[i].y.rows, terms[t].matrix->rank()}, Access::kRead);
        terms[t].middle = (*middle).data;
      }
      host_[i] = {terms, {const_cast<float*>((*y).data), (*y).rows, (*y).cols, (*y).stride}, items[i].col};
    }
  }
  ~OnHost() {
    for (size_t i = 0; i < device_.size(); ++i) copy_to_device(ctx_, host_[i].y, device_[i].y);
  }
  std::span<const kernels::LoRAExpand> operator*() const { return host_; }

  const Context& ctx_;
  std::span<const kernels::LoRAExpand> device_;
  std::span<kernels::LoRAExpand> host_;
};
template <>
struct OnHost<std::span<const kernels::LoRAAbsorb>> {
  OnHost(const Context& ctx, std::span<const kernels::LoRAAbsorb> items) : ctx_(ctx), device_(items) {
    host_ = ctx.kernel.scratch.make<kernels::LoRAAbsorb>(items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      const HostView<const float> q(ctx, items[i].q, Access::kRead);
      host_[i] = {items[i].terms, items[i].columns, *q, host_copy(ctx, items[i].y)};
    }
  }
  ~OnHost() {
    for (size_t i = 0; i < device_.size(); ++i) copy_to_device(ctx_, host_[i].y, device_[i].y);
  }
  std::span<const kernels::LoRAAbsorb> operator*() const { return host_; }

  const Context& ctx_;
  std::span<const kernels::LoRAAbsorb> device_;
  std::span<kernels::LoRAAbsorb> host_;
};

}  // namespace choral::platform
