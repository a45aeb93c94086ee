// Operators of the host for a device whose memory it can't read: arguments are copied in, results copied back.
#include "platform/cpu_ops.h"
#include "platform/host_view.h"

namespace choral::platform {
namespace {

// An argument as the host's operator takes it; what lives on the host already passes through.
template <class T>
struct OnHost {
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
  OnHost(const Context& ctx, std::span<const float> v)
      : view_(ctx, {v.data(), 1, static_cast<int64_t>(v.size())}, Access::kRead) {}
  std::span<const float> operator*() const { return (*view_).row_span(0); }
  HostView<const float> view_;
};

// What adapters add: each item's matrices travel, its packed panels are the host's.
template <>
struct OnHost<std::span<const kernels::LoRAShrink>> {
  OnHost(const Context& ctx, std::span<const kernels::LoRAShrink> items) : ctx_(ctx), device_(items) {
    host_ = ctx.kernel.scratch.make<kernels::LoRAShrink>(items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      const HostView<const float> x(ctx, items[i].x, Access::kRead);
      float* middle = ctx.kernel.scratch.make<float>(static_cast<size_t>(items[i].middle.rows * items[i].middle.cols)).data();
      host_[i] = {items[i].matrix, *x, items[i].factor, {middle, items[i].middle.rows, items[i].middle.cols}};
    }
  }
  ~OnHost() {
    for (size_t i = 0; i < device_.size(); ++i) copy_to_device(ctx_, host_[i].middle, device_[i].middle);
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
      host_[i] = {terms, {const_cast<float*>((*y).data), (*y).rows, (*y).cols}};
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

template <const OpTable& (*kHost)(), auto kOp, class Entry>
struct Staged;
template <const OpTable& (*kHost)(), auto kOp, class... Args>
struct Staged<kHost, kOp, Op<void(const Context&, Args...)>> {
  static void run(const Context& ctx, Args... args) {
    const Arena::Mark mark(ctx.kernel.scratch);
    (kHost().*kOp).run(ctx, *OnHost<std::remove_cvref_t<Args>>(ctx, args)...);  // results go back when the expression ends
  }
};

template <const OpTable& (*kHost)(), auto... kOps>
OpTable stage() {
  OpTable table;
  compose_fused_ops(table);
  const auto serve = [&]<class Entry>(Entry OpTable::*op, typename Entry::Run run) {
    const Entry& host = kHost().*op;
    (table.*op).serve(run, host.provider + ", staged");
  };
  (serve(kOps, Staged<kHost, kOps, std::remove_reference_t<decltype(table.*kOps)>>::run), ...);
  return table;
}

template <const OpTable& (*kHost)()>
OpTable stage_all() {
  return stage<kHost, &OpTable::matmul, &OpTable::lora_shrink, &OpTable::lora_expand, &OpTable::gather_rows, &OpTable::take_rows,
               &OpTable::add, &OpTable::rms_norm, &OpTable::rms_norm_heads, &OpTable::rotary_embedding, &OpTable::silu_and_mul,
               &OpTable::gelu_tanh_and_mul, &OpTable::write_kv, &OpTable::paged_attention>();
}

}  // namespace

const OpTable& staged_cpu_ops() {
  static const OpTable kOps = stage_all<cpu_ops>();
  return kOps;
}

const OpTable& staged_native_ops() {
  static const OpTable kOps = stage_all<native_ops>();
  return kOps;
}

}  // namespace choral::platform
