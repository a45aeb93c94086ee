// Tests of operators that look at rows: norms, activations, rotations, sums.
#include "platform/plugin/conformance.h"

namespace choral::platform::ops {
namespace {

using Results = std::vector<Out>;
constexpr int64_t kRows = 5, kHeadDim = 16, kHeads = 4, kKvHeads = 2, kCols = kHeads * kHeadDim;
constexpr float kEps = 1e-5F;

template <class D>
Status check_gated(Conformance& conformance) {
  return conformance.check({}, [](ConformanceRun& run) {
    const Out x = run.matrix(kRows, kCols), y = run.matrix(kRows, kCols / 2);
    run.call<D>(x, y);
    return Results{y};
  });
}

// Calls test(table) with every kind of table, by what it has beside the plainest.
Status check_rotations(Conformance& conformance, FunctionRef<Results(ConformanceRun&, const PlacedRotary&)> test) {
  struct Kind {
    std::string_view feature;
    int64_t rotary_dim;
    bool interleaved;
  };
  for (const Kind& kind : {Kind{{}, kHeadDim, false}, Kind{"partial rotary", kHeadDim / 2, false},
                           Kind{"interleaved rotary", kHeadDim, true}, Kind{"partial interleaved rotary", kHeadDim / 2, true}}) {
    CHORAL_RETURN_IF_ERROR(conformance.check(kind.feature, [&](ConformanceRun& run) {
      return test(
          run, run.rotary(
                   {.head_dim = kHeadDim, .rotary_dim = kind.rotary_dim, .max_positions = 64, .interleaved = kind.interleaved}));
    }));
  }
  return {};
}

Indices positions(ConformanceRun& run) { return run.indices({0, 1, 63, 7, 31}); }

}  // namespace

Status TakeRows::conform(Conformance& conformance) {
  return conformance.check({}, [](ConformanceRun& run) {
    const Out x = run.matrix(kRows, kCols), out = run.matrix(2, kCols);
    run.call<TakeRows>(x, run.indices({4, 0}), out);
    return Results{out};
  });
}

Status Add::conform(Conformance& conformance) {
  return conformance.check({}, [](ConformanceRun& run) {
    const Out x = run.matrix(kRows, kCols), y = run.matrix(kRows, kCols);
    run.call<Add>(x, y);
    return Results{y};
  });
}

Status AddBias::conform(Conformance& conformance) {
  return conformance.check({}, [](ConformanceRun& run) {
    const Out y = run.matrix(kRows, kCols);
    run.call<AddBias>(run.weight(kCols), y);
    return Results{y};
  });
}

Status SiluAndMul::conform(Conformance& conformance) { return check_gated<SiluAndMul>(conformance); }
Status GeluTanhAndMul::conform(Conformance& conformance) { return check_gated<GeluTanhAndMul>(conformance); }

Status SwigluOaiAndMul::conform(Conformance& conformance) {
  return conformance.check({}, [](ConformanceRun& run) {
    const Out x = run.matrix(kRows, kCols), y = run.matrix(kRows, kCols / 2);
    run.call<SwigluOaiAndMul>(x, ClampedSwiglu{.alpha = 1.5F, .limit = 0.5F}, y);  // values on both sides of the limit
    return Results{y};
  });
}

Status Scale::conform(Conformance& conformance) {
  return conformance.check({}, [](ConformanceRun& run) {
    const Out x = run.matrix(kRows, kCols);
    run.call<Scale>(x, 1.5F);
    return Results{x};
  });
}

Status MoeCombine::conform(Conformance& conformance) {
  return conformance.check({}, [](ConformanceRun& run) {
    const Out x = run.matrix(kRows, kCols), weights = run.matrix(3, 2), y = run.matrix(3, kCols), sum = run.matrix(3, kCols);
    const Indices places = run.indices({4, 0, 1, 1, 2, 3});
    run.call<MoeCombine>(x, places, weights, /*add=*/false, y);
    run.call<MoeCombine>(x, places, weights, /*add=*/true, sum);
    return Results{y, sum};
  });
}

Status RmsNorm::conform(Conformance& conformance) {
  return conformance.check({}, [](ConformanceRun& run) {
    const Out x = run.matrix(kRows, kCols), y = run.matrix(kRows, kCols);
    run.call<RmsNorm>(x, run.weight(kCols), kEps, y);
    return Results{y};
  });
}

Status RmsNormHeads::conform(Conformance& conformance) {
  return conformance.check({}, [](ConformanceRun& run) {
    const Out x = run.matrix(kRows, kCols);
    run.call<RmsNormHeads>(x, run.weight(kHeadDim), kEps);
    return Results{x};
  });
}

Status AddRmsNorm::conform(Conformance& conformance) {
  return conformance.check({}, [](ConformanceRun& run) {
    const Out x = run.matrix(kRows, kCols), residual = run.matrix(kRows, kCols), y = run.matrix(kRows, kCols);
    run.call<AddRmsNorm>(x, residual, run.weight(kCols), kEps, y);
    return Results{residual, y};
  });
}

Status AddRmsNormBias::conform(Conformance& conformance) {
  return conformance.check({}, [](ConformanceRun& run) {
    const Out x = run.matrix(kRows, kCols), residual = run.matrix(kRows, kCols), y = run.matrix(kRows, kCols);
    run.call<AddRmsNormBias>(x, residual, run.weight(kCols), run.weight(kCols), kEps, y);
    return Results{residual, y};
  });
}

Status RotaryEmbedding::conform(Conformance& conformance) {
  return check_rotations(conformance, [](ConformanceRun& run, const PlacedRotary& rotary) {
    const Out q = run.matrix(kRows, kCols), k = run.matrix(kRows, kKvHeads * kHeadDim);
    run.call<RotaryEmbedding>(rotary, positions(run), q, k);
    return Results{q, k};
  });
}

Status QkNormRope::conform(Conformance& conformance) {
  return check_rotations(conformance, [](ConformanceRun& run, const PlacedRotary& rotary) {
    const Out q = run.matrix(kRows, kCols), k = run.matrix(kRows, kKvHeads * kHeadDim);
    run.call<QkNormRope>(rotary, positions(run), q, run.weight(kHeadDim), k, run.weight(kHeadDim), kEps);
    return Results{q, k};
  });
}

// What was stored is what attention reads.
Status RopeWriteKv::conform(Conformance& conformance) {
  return check_rotations(conformance, [](ConformanceRun& run, const PlacedRotary& rotary) {
    const auto cache = run.cache(1, kKvHeads, kHeadDim, kHeadDim);
    const Out q = run.matrix(kRows, kCols), k = run.matrix(kRows, kKvHeads * kHeadDim),
              v = run.matrix(kRows, kKvHeads * kHeadDim), read = run.matrix(1, kCols);
    if (!run.status().ok()) return Results{};
    run.call<RopeWriteKv>(rotary, positions(run), q, k, v, cache, run.slots({0, 1, 2, 3, -1}));
    static constexpr std::array<int32_t, 1> kTable{0};
    static constexpr std::array kSequences{
        kernels::AttentionSequence{.query_begin = 0, .query_count = 1, .context_tokens = 3, .block_table = kTable}};
    const AttentionParams params{.heads = kHeads, .kv_heads = kKvHeads, .head_dim = kHeadDim, .scale = 0.25F};
    run.ctx().ops.paged_attention.run(run.ctx(), params, q.sub_rows(0, 1), cache, run.ctx().session.place_sequences(kSequences),
                                      {}, read);
    return Results{q, k, read};
  });
}

}  // namespace choral::platform::ops
