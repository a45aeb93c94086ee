// Operators of the host for a device whose memory it can't read: arguments are copied in, results copied back (on_host.h).
#include "platform/ops/cpu_ops.h"
#include "platform/ops/on_host.h"

namespace choral::platform {
namespace {

template <auto kForward>
struct Staged;
template <class... Args, void (*kForward)(const Context&, Args...)>
struct Staged<kForward> {
  static void run(const Context& ctx, Args... args) {
    const Arena::Mark mark(ctx.kernel.scratch);
    kForward(ctx, *OnHost<std::remove_cvref_t<Args>>(ctx, args)...);  // results go back when the expression ends
  }
};

struct CpuForm {
  template <class D>
  static constexpr auto kOf = D::forward_cpu;
};
struct NativeForm {
  template <class D>
  static constexpr auto kOf = D::forward_native;
};

// Fused operators are composed of the table's others, so that each argument is copied where it is used.
template <class Form>
OpTable stage(std::string_view provider) {
  OpTable table;
  AllOps::for_each([&]<class D>(D) {
    if constexpr (!D::kFused && !D::kCpuOnly) table.get<D>().serve(Staged<Form::template kOf<D>>::run, provider);
  });
  compose_fused_ops(table);
  return table;
}

}  // namespace

const OpTable& staged_cpu_ops() {
  static const OpTable kOps = stage<CpuForm>("cpu, staged");
  return kOps;
}

const OpTable& staged_native_ops() {
  static const OpTable kOps = stage<NativeForm>("native, staged");
  return kOps;
}

}  // namespace choral::platform
