// The plain loops against the kernels, where no test of a layer or a plug-in compares them.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/gemm/gemm_float.h"
#include "platform/cpu_context_test.h"
#include "platform/ops/cpu_ops.h"
#include "platform/session.h"

namespace choral::platform {
namespace {

std::vector<float> pattern(int64_t n, float step) {
  std::vector<float> x;
  for (int64_t i = 0; i < n; ++i) x.push_back(std::sin(static_cast<float>(i) * step));
  return x;
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5F) << i;
}

TEST(NativeOps, EveryOperatorSaysWhatItMeans) {
  AllOps::for_each([]<class D>(D) {
    const auto& provider = native_ops().get<D>().provider;
    EXPECT_EQ(provider, D::kCpuOnly ? "cpu" : D::kFused ? "composed" : "native") << D::kName;
    EXPECT_EQ(staged_cpu_ops().get<D>().provider, D::kCpuOnly ? "" : D::kFused ? "composed" : "cpu, staged") << D::kName;
    EXPECT_EQ(AllOps::find(D::kName), kOpId<D>);
  });
}

TEST(NativeOps, MatmulDoesWhatItsEpilogueSays) {
  constexpr int64_t kIn = 24, kOut = 17, kRows = 3;
  testing::CpuContext cpu;
  const auto weight = pattern(kOut * kIn, 0.3F), x = pattern(kRows * kIn, 0.7F), bias = pattern(kOut, 1.1F);
  const kernels::WeightRows rows{{std::as_bytes(std::span(weight)).data(), DType::kF32, {kOut, kIn}, kCpuDevice}, {}};
  const auto w = *cpu.session().prepack(*cpu, {.rows = {&rows, 1}, .format = DType::kF32});
  const auto add_row = [](int64_t row, int64_t, MatrixView<float> tile) {
    for (int64_t r = 0; r < tile.rows; ++r) {
      for (int64_t c = 0; c < tile.cols; ++c) tile.row(r)[c] += static_cast<float>(row + r);
    }
  };
  const kernels::Epilogue::Hook hook(add_row);
  for (const kernels::Epilogue& epilogue :
       {kernels::Epilogue{}, kernels::Epilogue{.bias = bias.data()}, kernels::Epilogue{.bias = bias.data(), .accumulate = true},
        kernels::Epilogue{.bias = bias.data(), .product_hook = &hook, .result_hook = &hook, .accumulate = true}}) {
    auto fast = pattern(kRows * kOut, 0.5F), plain = fast;
    cpu_ops().matmul(*cpu, *w, {x.data(), kRows, kIn}, epilogue, {fast.data(), kRows, kOut});
    native_ops().matmul(*cpu, *w, {x.data(), kRows, kIn}, epilogue, {plain.data(), kRows, kOut});
    expect_near(plain, fast);
  }
}

TEST(NativeOps, AdaptersAddTheSame) {
  constexpr int64_t kIn = 40, kRank = 5, kOut = 50, kRows = 3;
  testing::CpuContext cpu;
  const auto a = pattern(kRank * kIn, 0.3F), b = pattern(kOut * kRank, 0.7F), x = pattern(kRows * kIn, 0.9F);
  const std::array slices{
      kernels::LoRASliceSource{.out_begin = 0,
                               .a = {std::as_bytes(std::span(a)).data(), DType::kF32, {kRank, kIn}, kCpuDevice},
                               .b = {std::as_bytes(std::span(b)).data(), DType::kF32, {kOut, kRank}, kCpuDevice},
                               .scale = 2.0F}};
  const auto matrix = *kernels::LoRAMatrix::pack({.in = kIn, .out = kOut, .slices = slices}, kernels::LoRAFormat::kAuto);
  const auto added = [&](const OpTable& ops) {
    std::vector<float> middle(kRows * kRank), y = pattern(kRows * kOut, 0.5F);
    const kernels::LoRAShrink shrink{&matrix, {x.data(), kRows, kIn}, 1.0F, {middle.data(), kRows, kRank}};
    ops.packed_lora_shrink(*cpu, {&shrink, 1});
    const kernels::LoRATerm term{&matrix, middle.data()};
    const kernels::LoRAExpand expand{{&term, 1}, {y.data(), kRows, kOut}};
    ops.packed_lora_expand(*cpu, {&expand, 1});
    return y;
  };
  const auto plain = added(native_ops());
  expect_near(plain, added(cpu_ops()));
  EXPECT_NE(plain, pattern(kRows * kOut, 0.5F));
}

TEST(NativeOps, RowsAreTakenAndAdded) {
  testing::CpuContext cpu;
  const auto x = pattern(4 * 20, 0.3F);
  const std::vector<int32_t> rows{3, 0, 3};
  const auto run = [&](const OpTable& ops) {
    std::vector<float> y(3 * 20);
    const MatrixView<float> out(y.data(), 3, 20);
    ops.take_rows(*cpu, {x.data(), 4, 20}, {rows, rows.data()}, out);
    ops.add(*cpu, {x.data(), 3, 20}, out);
    return y;
  };
  EXPECT_EQ(run(native_ops()), run(cpu_ops()));
}

}  // namespace
}  // namespace choral::platform
