// Tests of the operators on adapters' stacks. Rows of no slot, of a slot twice and of a slot nobody has are in each; A and B come
// in every type that stacks may have.
#include "platform/plugin/conformance.h"

namespace choral::platform::ops {
namespace {

using Results = std::vector<Out>;
constexpr int64_t kRows = 7, kSlots = 3, kIn = 48, kRank = 8, kOut = 20, kWide = 40;

Indices slots_of_rows(ConformanceRun& run) { return run.indices({1, -1, 0, 0, 0, 1, -1}); }
SlotSequences slots_of_sequences(ConformanceRun& run) {
  return {.starts = run.indices({0, 1, 2, 5, 6}),
          .lengths = run.indices({1, 1, 3, 1, 1}),
          .slots = run.indices({1, -1, 0, 1, -1}),
          .max_length = 3,
          .rows = kRows};
}

Status check_types(Conformance& conformance, FunctionRef<Results(ConformanceRun&, DType)> test) {
  struct Kind {
    std::string_view feature;
    DType dtype;
  };
  for (const Kind& kind : {Kind{{}, DType::kF32}, Kind{"a stack of bf16", DType::kBF16}, Kind{"a stack of f16", DType::kF16}}) {
    CHORAL_RETURN_IF_ERROR(conformance.check(kind.feature, [&](ConformanceRun& run) { return test(run, kind.dtype); }));
  }
  return {};
}

template <class D, class Slots>
Status check_shrink(Conformance& conformance, Slots slots) {
  return check_types(conformance, [&](ConformanceRun& run, DType dtype) {
    const Out x = run.matrix(kRows, kIn), y = run.matrix(kRows, kRank);
    run.call<D>(x, run.stack(kSlots, kRank, kIn, dtype), slots(run), 0.5F, y);
    return Results{y};
  });
}

// Both of add; begin is of slices only.
template <class D, class Slots, class... Begin>
Status check_expand(Conformance& conformance, Slots slots, Begin... begin) {
  return check_types(conformance, [&](ConformanceRun& run, DType dtype) {
    const Out x = run.matrix(kRows, kRank), y = run.matrix(kRows, sizeof...(begin) == 0 ? kOut : kWide),
              assigned = run.matrix(kRows, y.cols);
    const Stack b = run.stack(kSlots, kOut, kRank, dtype);
    const auto rows = slots(run);
    run.call<D>(x, b, rows, begin..., true, y);
    run.call<D>(x, b, rows, begin..., false, assigned);
    return Results{y, assigned};
  });
}

}  // namespace

Status BgmvShrink::conform(Conformance& c) { return check_shrink<BgmvShrink>(c, slots_of_rows); }
Status SgmvShrink::conform(Conformance& c) { return check_shrink<SgmvShrink>(c, slots_of_sequences); }
Status BgmvExpand::conform(Conformance& c) { return check_expand<BgmvExpand>(c, slots_of_rows); }
Status SgmvExpand::conform(Conformance& c) { return check_expand<SgmvExpand>(c, slots_of_sequences); }
Status BgmvExpandSlice::conform(Conformance& c) { return check_expand<BgmvExpandSlice>(c, slots_of_rows, int64_t{11}); }
Status SgmvExpandSlice::conform(Conformance& c) { return check_expand<SgmvExpandSlice>(c, slots_of_sequences, int64_t{11}); }

Status BgmvScale::conform(Conformance& conformance) {
  return conformance.check({}, [](ConformanceRun& run) {
    const Out y = run.matrix(kRows, kOut);
    run.call<BgmvScale>(run.stack(kSlots, 1, kOut, DType::kF32), slots_of_rows(run), y);
    return Results{y};
  });
}

}  // namespace choral::platform::ops
