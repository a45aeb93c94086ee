#include "platform/plugin/plugin_ops.h"

#include "platform/host_view.h"
#include "platform/plugin/plugin_host.h"

namespace choral::platform {
namespace {

PluginSession& session_of(const Context& ctx) { return static_cast<PluginSession&>(ctx.session); }

// A weight that the device did not take is multiplied where it is.
template <class T>
bool is_hosts_weight(const T&) {
  return false;
}
bool is_hosts_weight(const kernels::PackedMatrix& w) { return !w.on_device(); }

template <class D, OpSet kSet, class Call = typename D::Call>
struct Oot;
template <class D, OpSet kSet, class... Args>
struct Oot<D, kSet, void(const Context&, Args...)> {
  static void forward_oot(const Context& ctx, Args... args) {
    auto& session = session_of(ctx);
    if constexpr (D::kFused) {
      // The library comes with the first call; without it the operator is what it means.
      if (!session.enable_custom_op(ctx)) return D::forward_native(ctx, args...);
    }
    if ((is_hosts_weight(args) || ...)) return staged_cpu_ops().get<D>().run(ctx, args...);
    const auto given = D::oot_arguments(args...);
    if constexpr (D::kFused) {
      if (!session.call(kSet, kOpId<D>, &given)) D::forward_native(ctx, args...);
    } else if constexpr (D::kOnCache) {
      session.must_call(kOpId<D>, &given);
    } else {
      if (!session.call(kSet, kOpId<D>, &given)) staged_cpu_ops().get<D>().run(ctx, args...);
    }
  }
};

// The epilogue's hooks are the host's, and a product that the device failed to make is made of a copy of its weight.
template <OpSet kSet>
struct Oot<ops::Matmul, kSet, ops::Matmul::Call> {
  static void forward_oot(const Context& ctx, const kernels::PackedMatrix& w, ops::In x, const kernels::Epilogue& epilogue,
                          ops::Out y) {
    if (is_hosts_weight(w)) return staged_cpu_ops().matmul.run(ctx, w, x, epilogue, y);
    const StepMark mark(ctx);
    const bool hooked = epilogue.product_hook != nullptr || epilogue.result_hook != nullptr;
    const ops::Out product = hooked ? ctx.make_matrix(y.rows, y.cols) : y;
    const auto given = ops::Matmul::oot_arguments(w, x, hooked ? kernels::Epilogue{} : epilogue, product);
    const bool done = session_of(ctx).call(kSet, kOpId<ops::Matmul>, &given);
    if (done && !hooked) return;

    kernels::Epilogue on_host = epilogue;
    const HostView<const float> bias(ctx, {epilogue.bias, epilogue.bias == nullptr ? 0 : 1, y.cols}, Access::kRead);
    on_host.bias = epilogue.bias == nullptr ? nullptr : (*bias).data;
    if (done) {
      const HostView<float> result(ctx, y, epilogue.accumulate ? Access::kReadWrite : Access::kWrite);
      return finish_product(on_host, host_copy(ctx, product), *result);
    }
    const auto copy = static_cast<const PluginMatrix&>(w).host_copy(ctx.kernel.pool);
    if (!copy.ok()) return session_of(ctx).fail(copy.status());
    staged_cpu_ops().matmul.run(ctx, **copy, x, on_host, y);
  }
};

// Products that the device can't make as one are made one by one.
template <OpSet kSet>
struct Oot<ops::GroupedMatmul, kSet, ops::GroupedMatmul::Call> {
  static void forward_oot(const Context& ctx, std::span<const kernels::GroupProduct> products) {
    auto& session = session_of(ctx);
    const auto one_by_one = [&] { ops::GroupedMatmul::forward_native(ctx, products); };
    if (!session.enable_custom_op(ctx)) return one_by_one();
    const Arena::Mark mark(ctx.kernel.scratch);
    const auto given = ctx.kernel.scratch.make<choral_matmul_args>(products.size());
    size_t count = 0;
    for (const auto& [w, x, epilogue, y] : products) {
      if (y.rows == 0) continue;
      const bool hooked = epilogue.product_hook != nullptr || epilogue.result_hook != nullptr;
      if (hooked || is_hosts_weight(*w)) return one_by_one();
      given[count++] = ops::Matmul::oot_arguments(*w, x.x, epilogue, y);
    }
    const auto all = ops::GroupedMatmul::oot_arguments(given.first(count));
    if (count > 0 && !session.call(kSet, kOpId<ops::GroupedMatmul>, &all)) one_by_one();
  }
};

template <OpSet kSet>
void install(OpTable& table, OpId op, std::string_view provider, std::string_view why) {
  AllOps::at(op, [&]<class D>(D) {
    if constexpr (HasOotForm<D>) table.get<D>().serve(Oot<D, kSet>::forward_oot, provider, why);
  });
}

}  // namespace

void install_plugin_op(OpTable& table, OpId op, OpSet set, std::string_view provider, std::string_view why) {
  if (set == OpSet::kTable) return install<OpSet::kTable>(table, op, provider, why);
  install<OpSet::kCustom>(table, op, provider, why);
}

void withdraw_plugin_op(OpTable& table, OpId op, std::string_view why) {
  AllOps::at(op, [&]<class D>(D) {
    table.get<D>().provider = staged_cpu_ops().get<D>().provider;
    table.get<D>().reason = why;
  });
}

}  // namespace choral::platform
