// Tests of the operators on adapters' stacks. Rows of no slot, of a slot twice and of a slot nobody has are in each; A and B come
// in every type that stacks may have.
#include <array>

#include "platform/plugin/conformance.h"

namespace choral::platform::ops {
namespace {

using Results = std::vector<Out>;
constexpr int64_t kRows = 7, kSlots = 3, kIn = 48, kRank = 8, kOut = 20, kWide = 40;
constexpr std::array<int32_t, kSlots> kRanksOfSlots{3, kRank, 0};
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
      return r.stack(ConformanceRun::Ranked::kA, kRanksOfSlots, kRank, kIn, type);
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
        [](auto& r, DType type) { return r.stack(ConformanceRun::Ranked::kB, kRanksOfSlots, kOut, kRank, type); }, begin...);
  });
}

// Projections that are computed together: as many as may be, of several ranks and widths.
struct Projection {
  int64_t rank, out, begin;
  std::array<int32_t, kSlots> ranks;  // of the slots, where they are said; 0: the adapter leaves it alone
};
constexpr std::array<Projection, kMostLoRASlices> kProjections{
    {{8, 20, 0, {3, 8, 0}}, {16, 9, 20, {16, 0, 5}}, {8, 3, 29, {0, 8, 1}}, {8, 6, 34, {7, 1, 8}}}};
enum class Ranks { kUnsaid, kSaid };

Stack stack_of(ConformanceRun& run, const Projection& p, ConformanceRun::Ranked kind, DType dtype, Ranks ranks) {
  const bool is_a = kind == ConformanceRun::Ranked::kA;
  const int64_t rows = is_a ? p.rank : p.out, cols = is_a ? kIn : p.rank;
  return ranks == Ranks::kSaid ? run.stack(kind, p.ranks, rows, cols, dtype) : run.stack(kSlots, rows, cols, dtype);
}

Results run_shrinks(ConformanceRun& run, std::span<const Projection> projections, DType dtype, Ranks ranks,
                    const RowSlots& slots) {
  const Out x = run.matrix(kRows, kIn);
  std::vector<ShrinkSlice> slices;
  Results middles;
  for (const auto& p : projections) {
    middles.push_back(run.matrix(kRows, p.rank));
    slices.push_back({stack_of(run, p, ConformanceRun::Ranked::kA, dtype, ranks), middles.back()});
  }
  run.call<LoRAShrink>(x, std::span<const ShrinkSlice>(slices), slots, 0.5F);
  return middles;
}

Results run_expands(ConformanceRun& run, std::span<const Projection> projections, DType dtype, Ranks ranks,
                    const RowSlots& slots) {
  const Out y = run.matrix(kRows, kWide), assigned = run.matrix(kRows, kWide);
  std::vector<ExpandSlice> slices;
  for (const auto& p : projections) {
    slices.push_back({stack_of(run, p, ConformanceRun::Ranked::kB, dtype, ranks), run.matrix(kRows, p.rank), p.begin});
  }
  run.call<LoRAExpand>(std::span<const ExpandSlice>(slices), slots, true, y);
  run.call<LoRAExpand>(std::span<const ExpandSlice>(slices), slots, false, assigned);
  return {y, assigned};
}

Status check_slices(Conformance& conformance, decltype(run_shrinks)* run_slices) {
  const std::span<const Projection> all = kProjections;
  CHORAL_RETURN_IF_ERROR(check_types(conformance, [&](ConformanceRun& run, DType dtype) {
    return run_slices(run, all.first(3), dtype, Ranks::kUnsaid, slots_of_rows(run));
  }));
  CHORAL_RETURN_IF_ERROR(conformance.check("rows by sequences", [&](ConformanceRun& run) {
    return run_slices(run, all, DType::kF32, Ranks::kUnsaid, slots_of_sequences(run));
  }));
  CHORAL_RETURN_IF_ERROR(conformance.check("one projection", [&](ConformanceRun& run) {
    return run_slices(run, all.last(1), DType::kBF16, Ranks::kUnsaid, slots_of_rows(run));
  }));
  return conformance.check(
      kRanks, [&](ConformanceRun& run) { return run_slices(run, all, DType::kBF16, Ranks::kSaid, slots_of_rows(run)); });
}

}  // namespace

Status BgmvShrink::conform(Conformance& c) { return check_shrink<BgmvShrink>(c, slots_of_rows); }
Status SgmvShrink::conform(Conformance& c) { return check_shrink<SgmvShrink>(c, slots_of_sequences); }
Status BgmvExpand::conform(Conformance& c) { return check_expand<BgmvExpand>(c, slots_of_rows); }
Status SgmvExpand::conform(Conformance& c) { return check_expand<SgmvExpand>(c, slots_of_sequences); }
Status BgmvExpandSlice::conform(Conformance& c) { return check_expand<BgmvExpandSlice>(c, slots_of_rows, int64_t{11}); }
Status SgmvExpandSlice::conform(Conformance& c) { return check_expand<SgmvExpandSlice>(c, slots_of_sequences, int64_t{11}); }

Status LoRAShrink::conform(Conformance& c) { return check_slices(c, run_shrinks); }
Status LoRAExpand::conform(Conformance& c) { return check_slices(c, run_expands); }

Status BgmvScale::conform(Conformance& conformance) {
  return conformance.check({}, [](ConformanceRun& run) {
    const Out y = run.matrix(kRows, kOut);
    run.call<BgmvScale>(run.stack(kSlots, 1, kOut, DType::kF32), slots_of_rows(run), y);
    return Results{y};
  });
}

}  // namespace choral::platform::ops
