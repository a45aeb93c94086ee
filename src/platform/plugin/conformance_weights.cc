// Tests of operators that multiply by a weight or read its rows.
#include "platform/plugin/conformance.h"

namespace choral::platform::ops {
namespace {

using Results = std::vector<Out>;
constexpr int64_t kRows = 5, kOut = 40, kIn = 48;

struct Stored {
  std::string_view feature;
  DType dtype;
};

// With weights of every type that the device packs; float32 is the least.
Status check_weights(Conformance& conformance, FunctionRef<Results(ConformanceRun&, const PackedMatrix&)> test) {
  for (const auto& [feature, dtype] : {Stored{{}, DType::kF32}, Stored{"bf16 weights", DType::kBF16}}) {
    bool packed = true;
    const Status status = conformance.check(feature, [&](ConformanceRun& run) {
      const PackedMatrix* w = run.packed(kOut, kIn, dtype);
      packed = packed && w != nullptr;
      return w == nullptr ? Results{} : test(run, *w);
    });
    if (packed || dtype == DType::kF32) CHORAL_RETURN_IF_ERROR(Status(status));
  }
  return {};
}

}  // namespace

Status Matmul::conform(Conformance& conformance) {
  return check_weights(conformance, [](ConformanceRun& run, const PackedMatrix& w) {
    const Out x = run.matrix(kRows, kIn), y = run.matrix(kRows, kOut), summed = run.matrix(kRows, kOut);
    run.call<Matmul>(w, x, Epilogue{}, y);
    run.call<Matmul>(w, x, Epilogue{.bias = run.beside_packed(kOut).data(), .accumulate = true}, summed);
    return Results{y, summed};
  });
}

Status GatherRows::conform(Conformance& conformance) {
  return check_weights(conformance, [](ConformanceRun& run, const PackedMatrix& w) {
    const Out out = run.matrix(3, kIn);
    run.call<GatherRows>(w, run.indices({7, 0, 39}), out);
    return Results{out};
  });
}

}  // namespace choral::platform::ops
