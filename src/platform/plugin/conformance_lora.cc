// Tests of the operators on adapters' stacks. Rows of no slot, of a slot twice and of a slot nobody has are in each; A and B come
// in every type that stacks may have.
#include "platform/plugin/conformance.h"

namespace choral::platform::ops {
namespace {

using Results = std::vector<Out>;
constexpr int64_t kRows = 7, kSlots = 3, kIn = 48, kRank = 8, kOut = 20, kWide = 40;
constexpr std::string_view kRanks = "ranks of slots";

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

// `stack` makes it: run, type -> Stack.
template <class D, class Slots, class MakeStack>
Results run_shrink(ConformanceRun& run, DType dtype, Slots slots, MakeStack stack) {
  const Out x = run.matrix(kRows, kIn), y = run.matrix(kRows, kRank);
  run.call<D>(x, stack(run, dtype), slots(run), 0.5F, y);
  return {y};
}

template <class D, class Slots>
Status check_shrink(Conformance& conformance, Slots slots) {
  CHORAL_RETURN_IF_ERROR(check_types(conformance, [&](ConformanceRun& run, DType dtype) {
    return run_shrink<D>(run, dtype, slots, [](auto& r, DType type) { return r.stack(kSlots, kRank, kIn, type); });
  }));
  return conformance.check(kRanks, [&](ConformanceRun& run) {
    return run_shrink<D>(run, DType::kBF16, slots, [](auto& r, DType type) {
      return r.stack(ConformanceRun::Ranked::kA, {3, kRank, 0}, kRank, kIn, type);
    });
  });
}

// Both of add; begin is of slices only.
template <class D, class Slots, class MakeStack, class... Begin>
Results run_expand(ConformanceRun& run, DType dtype, Slots slots, MakeStack stack, Begin... begin) {
  const Out x = run.matrix(kRows, kRank), y = run.matrix(kRows, sizeof...(begin) == 0 ? kOut : kWide),
            assigned = run.matrix(kRows, y.cols);
  const Stack b = stack(run, dtype);
  const auto rows = slots(run);
  run.call<D>(x, b, rows, begin..., true, y);
  run.call<D>(x, b, rows, begin..., false, assigned);
  return {y, assigned};
}

template <class D, class Slots, class... Begin>
Status check_expand(Conformance& conformance, Slots slots, Begin... begin) {
  CHORAL_RETURN_IF_ERROR(check_types(conformance, [&](ConformanceRun& run, DType dtype) {
    return run_expand<D>(
        run, dtype, slots, [](auto& r, DType type) { return r.stack(kSlots, kOut, kRank, type); }, begin...);
  }));
  return conformance.check(kRanks, [&](ConformanceRun& run) {
    return run_expand<D>(
        run, DType::kBF16, slots,
        [](auto& r, DType type) {
          return r.stack(ConformanceRun::Ranked::kB, {3, kRank, 0}, kOut, kRank, type);
        },
        begin...);
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
