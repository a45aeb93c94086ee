// A new operator, as docs/recipes/add-an-operator.md tells to add it, with one piece forgotten: -DFORGET_…
#include "platform/ops/on_host.h"
#include "platform/ops/op_table.h"

struct choral_twice_args;

namespace choral::platform {
namespace ops {

// y = 2·x
struct Twice : OpTraits {
#ifndef FORGET_NAME
  CHORAL_OP(twice);
#endif
#ifndef FORGET_CALL
  using Call = void(const Context&, In x, Out y);
#endif
#ifndef FORGET_CPU
  static void forward_cpu(const Context&, In x, Out y);
#endif
#ifndef FORGET_NATIVE
  static void forward_native(const Context&, In x, Out y);
#endif
#ifndef FORGET_OOT
  static choral_twice_args oot_arguments(In x, Out y);
#endif
#ifndef FORGET_CONFORM
  static Status conform(Conformance&);
#endif
};

}  // namespace ops

static_assert(is_whole<ops::Twice>());

#ifdef FORGET_LIST
static_assert(kOpId<ops::Twice> != OpId());
#endif
#ifdef FORGET_STAGING
template struct OnHost<std::vector<float>>;
#endif

}  // namespace choral::platform
