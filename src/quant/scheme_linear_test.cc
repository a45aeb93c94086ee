// The method's whole life: create_weights, weight_loader, process_weights_after_loading, apply.
#include "quant/scheme_linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/gemm/gemm_quant_test_data.h"
#include "kernels/quant/dequantise.h"
#include "platform/cpu_context_test.h"
#include "platform/host_view.h"
#include "quant/weights_test.h"

namespace choral::quant {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::StoredWeights;

constexpr float kBetween = 1.0f + 1.0f / 4096;  // a float32 that neither float16 nor bfloat16 has

class SchemeLinearTest : public ::testing::Test {
 protected:
  using Method = std::unique_ptr<LinearMethod>;

  static Method make_method(SchemePtr scheme = float_scheme()) { return make_scheme_linear_method(std::move(scheme)); }

  // The method with `shape`'s weights packed.
  Result<Method> load(const LinearShape& shape, WeightSource& source, SchemePtr scheme = float_scheme()) {
    Method method = make_method(std::move(scheme));
    ParameterSet parameters;
    method->create_weights(shape, parameters);
    CHORAL_RETURN_IF_ERROR(parameters.weight_loader(source));
    CHORAL_RETURN_IF_ERROR(method->process_weights_after_loading(ctx_, source.request(), shape, parameters));
    parameters.release(source);
    return method;
  }

  // y of `rows` rows of x.
  std::vector<float> apply(const LinearMethod& method, const LinearShape& shape, std::vector<float> x,
                           const kernels::Epilogue& epilogue = {}) {
    const auto rows = static_cast<int64_t>(x.size()) / shape.in;
    std::vector<float> y(rows * shape.out_total(), 100.0f);
    method.apply(ctx_, {x.data(), rows, shape.in}, epilogue, {y.data(), rows, shape.out_total()});
    return y;
  }

  std::vector<float> read_row(const LinearMethod& method, int64_t row, int64_t in) {
    std::vector<float> out(in);
    EXPECT_TRUE(method.read_row(row, out).ok());
    return out;
  }

  platform::testing::CpuContext cpu_;
  platform::Context& ctx_ = *cpu_;
};

// Two shards of two and one rows.
const LinearShape kTwoShards{.in = 2, .out = {2, 1}, .shard_names = {"q", "k"}, .bias = true};

// If `mixed`, the second shard is of another type than the first.
StoredWeights two_shards(bool mixed, const WeightRequest& request = {}) {
  StoredWeights source(request);
  source.add("q.weight", DType::kF32, {2, 2}, {1, 2, 3, 4});
  source.add("k.weight", mixed ? DType::kF16 : DType::kF32, {1, 2}, {5, 6});
  source.add("q.bias", DType::kF32, {2}, {0.5f, -0.5f});
  source.add("k.bias", DType::kBF16, {1}, {0.25f});
  return source;
}

TEST_F(SchemeLinearTest, RegistersAWeightAndABiasOfEachShard) {
  ParameterSet parameters;
  make_method()->create_weights(kTwoShards, parameters);
  const auto& weight = parameters.get("weight").shards;
  ASSERT_EQ(weight.size(), 2u);
  EXPECT_EQ(weight[0].name, "q.weight");
  EXPECT_EQ(weight[0].shape, (Shape{2, 2}));
  EXPECT_EQ(weight[1].shape, (Shape{1, 2}));
  EXPECT_EQ(parameters.get("bias").shards[1].name, "k.bias");

  ParameterSet without_bias;
  make_method()->create_weights({.in = 2, .out = {2}, .shard_names = {"o"}}, without_bias);
  EXPECT_FALSE(without_bias.contains("bias"));
}

TEST_F(SchemeLinearTest, AppliesTheStackOfItsShards) {
  for (const bool mixed : {false, true}) {
    auto source = two_shards(mixed);
    const auto method = load(kTwoShards, source);
    ASSERT_TRUE(method.ok()) << method.status().message();
    EXPECT_THAT(apply(**method, kTwoShards, {1, 1, 1, -1}), ElementsAre(3.5f, 6.5f, 11.25f, -0.5f, -1.5f, -0.75f));
    EXPECT_THAT(apply(**method, kTwoShards, {1, 1}, {.accumulate = true}), ElementsAre(103.5f, 106.5f, 111.25f));
    EXPECT_THAT(read_row(**method, 1, 2), ElementsAre(3, 4));
    EXPECT_THAT(read_row(**method, 2, 2), ElementsAre(5, 6));
    EXPECT_THAT((*method)->bias(), ElementsAre(0.5f, -0.5f, 0.25f));
    EXPECT_THAT(source.released(), ElementsAre("q.weight", "k.weight", "q.bias", "k.bias"));
  }
}

TEST_F(SchemeLinearTest, HooksSpeakOfColumnsOfTheWholeResult) {
  // Adds 10·column to the product, 1000 to the result.
  const auto product = [](int64_t, int64_t col, MatrixView<float> tile) {
    for (int64_t c = 0; c < tile.cols; ++c) tile.row(0)[c] += 10 * static_cast<float>(col + c);
  };
  const auto result = [](int64_t, int64_t col, MatrixView<float> tile) {
    for (int64_t c = 0; c < tile.cols; ++c) tile.row(0)[c] += 1000 * static_cast<float>(col + c);
  };
  const kernels::Epilogue::Hook product_hook(product), result_hook(result);
  for (const bool mixed : {false, true}) {
    auto source = two_shards(mixed);
    const auto method = *load(kTwoShards, source);
    EXPECT_THAT(apply(*method, kTwoShards, {1, 1}, {.product_hook = &product_hook, .result_hook = &result_hook}),
                ElementsAre(3.5f, 1016.5f, 2031.25f));
  }
}

TEST_F(SchemeLinearTest, NamesEachFormatOnce) {
  const LinearShape shape{.in = 32, .out = {1, 1, 1, 1}, .shard_names = {"a", "b", "c", "d"}};
  const auto blocks = kernels::random_quant_matrix(DType::kQ8_0, 1, 32, /*seed=*/1);
  StoredWeights source;
  source.add("a.weight", DType::kBF16, {1, 32}, {1});
  source.add("b.weight", DType::kF16, {1, 32}, {1});  // "f16" stands in "bf16" too
  source.add("c.weight", blocks.view());
  source.add("d.weight", DType::kBF16, {1, 32}, {1});
  const auto method = *load(shape, source);
  EXPECT_EQ(method->format(), "bf16+f16+q8_0");
  EXPECT_THAT(method->kernel_name(CpuLevel::kBase), HasSubstr("+f16 x f32"));
}

TEST_F(SchemeLinearTest, MixedShardsEqualEachAlone) {
  constexpr int64_t kIn = 256;
  const auto k4 = kernels::random_quant_matrix(DType::kQ4_K, 20, kIn, /*seed=*/1);
  const auto k6 = kernels::random_quant_matrix(DType::kQ6_K, 12, kIn, /*seed=*/2);
  StoredWeights source;
  source.add("q.weight", k4.view());
  source.add("v.weight", k6.view());
  const LinearShape both{.in = kIn, .out = {20, 12}, .shard_names = {"q", "v"}};
  const LinearShape q{.in = kIn, .out = {20}, .shard_names = {"q"}}, v{.in = kIn, .out = {12}, .shard_names = {"v"}};
  const auto fused = *load(both, source), q_alone = *load(q, source), v_alone = *load(v, source);
  EXPECT_EQ(fused->format(), "q4_k+q6_k");
  EXPECT_EQ(fused->size_bytes(), q_alone->size_bytes() + v_alone->size_bytes());
  const auto x = kernels::gaussian(kIn, /*seed=*/3);
  auto parts = apply(*q_alone, q, x);
  const auto second = apply(*v_alone, v, x);
  parts.insert(parts.end(), second.begin(), second.end());
  EXPECT_EQ(apply(*fused, both, x), parts);
}

TEST_F(SchemeLinearTest, TakesQuantisedInputOnlyIfEveryRunWantsTheSame) {
  constexpr int64_t kIn = 32;
  const auto q8 = kernels::random_quant_matrix(DType::kQ8_0, 1, kIn, /*seed=*/1);
  StoredWeights source;
  source.add("q.weight", q8.view());
  source.add("k.weight", DType::kF16, {1, kIn}, {1});
  EXPECT_FALSE(make_method()->quantised_input(cpu_level()));  // nothing is packed
  EXPECT_TRUE((*load({.in = kIn, .out = {1}, .shard_names = {"q"}}, source))->quantised_input(cpu_level()));
  EXPECT_FALSE((*load({.in = kIn, .out = {1, 1}, .shard_names = {"q", "k"}}, source))->quantised_input(cpu_level()));

  const LinearShape twice{.in = kIn, .out = {1, 1}, .shard_names = {"q", "q"}};
  const auto method = *load(twice, source);
  const auto x = kernels::gaussian(kIn, /*seed=*/2);
  Arena arena;
  const kernels::QuantisedRows rows(arena, *method->quantised_input(cpu_level()), 1, kIn);
  kernels::quantise_rows(ctx_.kernel, {x.data(), 1, kIn}, rows);
  std::vector<float> y(2);
  method->apply_quantised(ctx_, rows, {}, {y.data(), 1, 2});
  EXPECT_EQ(y, apply(*method, twice, x));
}

TEST_F(SchemeLinearTest, RoundsWeightsAndBiasToTheRequestedType) {
  StoredWeights source({.as_stored = false, .convert_to = DType::kBF16});
  source.add("q.weight", DType::kF32, {1, 2}, {kBetween, 2});
  source.add("k.weight", DType::kF16, {1, 2}, {3, 4});
  source.add("q.bias", DType::kF32, {1}, {kBetween});
  source.add("k.bias", DType::kF32, {1}, {-1});
  const LinearShape shape{.in = 2, .out = {1, 1}, .shard_names = {"q", "k"}, .bias = true};
  const auto method = *load(shape, source);
  EXPECT_EQ(method->format(), "bf16");
  EXPECT_THAT(read_row(*method, 0, 2), ElementsAre(1, 2));
  EXPECT_THAT(method->bias(), ElementsAre(1, -1));
}

TEST_F(SchemeLinearTest, GathersRowsInPackedOrder) {
  StoredWeights source;
  source.add("embed.weight", DType::kF32, {3, 2}, {1, 2, 3, 4, 5, 6}, /*row_order=*/{2, 0, 1});
  const auto method = *load({.in = 2, .out = {3}, .shard_names = {"embed"}}, source);
  const std::vector<int32_t> ids{0, 2, 0};
  std::vector<float> rows(6);
  method->gather_rows(ctx_, platform::place_indices(ctx_, std::span<const int32_t>(ids)), {rows.data(), 3, 2});
  EXPECT_THAT(rows, ElementsAre(5, 6, 3, 4, 5, 6));
}

TEST_F(SchemeLinearTest, AShardThatCannotBePackedIsNamed) {
  StoredWeights source;  // a float64 is packed as another type only
  const Tensor wide = *Tensor::allocate(DType::kF64, {1, 2});
  source.add("o.weight", wide.view());
  const auto method = load({.in = 2, .out = {1}, .shard_names = {"o"}}, source);
  ASSERT_FALSE(method.ok());
  EXPECT_EQ(method.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(method.status().message(), HasSubstr("o.weight: "));
  EXPECT_THAT(method.status().message(), HasSubstr("not float64"));
}

// q of a weight or a row, and its scale, as W8A8_DYNAMIC defines them.
struct Int8Row {
  std::vector<double> q;
  float scale = 0;
};
Int8Row int8_of(std::span<const float> row) {
  Int8Row out;
  for (const float v : row) out.scale = std::max(out.scale, std::abs(v) / 127.0f);
  for (const float v : row) out.q.push_back(out.scale == 0 ? 0 : std::clamp(std::nearbyint(v / out.scale), -127.0f, 127.0f));
  return out;
}

TEST_F(SchemeLinearTest, W8A8InFlightIsItsFormulaOnTheLoadedRows) {
  constexpr int64_t kIn = 33;
  const auto q = kernels::gaussian(3 * kIn, /*seed=*/1), x = kernels::gaussian(2 * kIn, /*seed=*/2);
  auto k = kernels::gaussian(2 * kIn, /*seed=*/3);
  std::fill_n(k.begin(), kIn, 0.0f);
  StoredWeights source;
  source.add("q.weight", DType::kF32, {3, kIn}, q, /*row_order=*/{2, 0, 1});
  source.add("k.weight", DType::kF32, {2, kIn}, k);
  source.add("q.bias", DType::kF32, {3}, {1, 2, 3});
  source.add("k.bias", DType::kF32, {2}, {4, 5});
  const LinearShape shape{.in = kIn, .out = {3, 2}, .shard_names = {"q", "k"}, .bias = true};
  const auto method = *load(shape, source, dynamic_scheme(rounded_floats(8)));
  EXPECT_EQ(method->format(), "int8");
  const auto y = apply(*method, shape, x);
  const std::vector<std::span<const float>> rows{std::span(q).subspan(2 * kIn, kIn), std::span(q).first(kIn),
                                                 std::span(q).subspan(kIn, kIn), std::span(k).first(kIn),
                                                 std::span(k).subspan(kIn, kIn)};
  for (int64_t j = 0; j < 5; ++j) {
    const auto w = int8_of(rows[j]);
    const auto loaded = read_row(*method, j, kIn);
    for (int64_t i = 0; i < kIn; ++i) ASSERT_EQ(loaded[i], static_cast<float>(w.q[i]) * w.scale);
    for (int64_t t = 0; t < 2; ++t) {
      const auto row = int8_of(std::span(x).subspan(t * kIn, kIn));
      double sum = 0;
      for (int64_t i = 0; i < kIn; ++i) sum += w.q[i] * row.q[i];
      const double expected = sum * w.scale * row.scale + static_cast<double>(j + 1);
      ASSERT_NEAR(y[t * 5 + j], expected, 1e-6 * (1 + std::abs(expected)));
    }
  }
}

TEST_F(SchemeLinearTest, W8A8MultipliesEachMemberWithItsOwnInputScale) {
  constexpr int64_t kIn = 40;
  Tensor q = *Tensor::allocate(DType::kI8, {2, kIn}), k = *Tensor::allocate(DType::kI8, {1, kIn});
  for (int64_t i = 0; i < 2 * kIn; ++i) q.as<int8_t>()[i] = static_cast<int8_t>(i * 37 % 256 - 128);
  for (int64_t i = 0; i < kIn; ++i) k.as<int8_t>()[i] = int8_t{-128};
  StoredWeights source;
  source.add("q.weight", q.view());
  source.add("k.weight", k.view());
  source.add("q.weight_scale", DType::kF32, {2, 1}, {0.01f, 0.02f});
  source.add("k.weight_scale", DType::kBF16, {1, 1}, {0.25f});
  source.add("q.input_scale", DType::kF32, {1}, {0.03f});
  source.add("k.input_scale", DType::kF32, {1}, {0.04f});
  const LinearShape shape{.in = kIn, .out = {2, 1}, .shard_names = {"q", "k"}};
  const auto method = *load(shape, source, static_scheme(int8_rows({.bits = 8}), /*symmetric_input=*/true));
  auto x = kernels::gaussian(kIn, /*seed=*/4);
  x[3] = 100.0f;  // beyond the calibrated range
  x[4] = -100.0f;
  const auto y = apply(*method, shape, x);
  const float scales[] = {0.01f, 0.02f, 0.25f}, inputs[] = {0.03f, 0.03f, 0.04f};
  for (int64_t j = 0; j < 3; ++j) {
    const auto* w = j < 2 ? q.as<int8_t>().data() + j * kIn : k.as<int8_t>().data();
    double sum = 0;
    for (int64_t i = 0; i < kIn; ++i) sum += w[i] * std::clamp(std::nearbyint(x[i] / inputs[j]), -128.0f, 127.0f);
    EXPECT_NEAR(y[j], sum * scales[j] * inputs[j], 1e-6 * std::abs(sum * scales[j])) << j;
    EXPECT_NEAR(read_row(*method, j, kIn)[7], w[7] * scales[j], 1e-6f);
  }
  source.add("k.input_scale", DType::kF32, {1}, {0.0f});
  EXPECT_THAT(load(shape, source, static_scheme(int8_rows({.bits = 8}), /*symmetric_input=*/true)).status().message(),
              HasSubstr("k.input_scale is 0; a scale is above 0"));
}

TEST_F(SchemeLinearTest, W8A8InFlightRefusesWhatIsNoNumberOrQuantisedAlready) {
  const LinearShape shape{.in = 32, .out = {2}, .shard_names = {"o"}};
  StoredWeights source;
  std::vector<float> values(64, 1.0f);
  values[40] = std::numeric_limits<float>::quiet_NaN();
  source.add("o.weight", DType::kF32, {2, 32}, values);
  const auto method = load(shape, source, dynamic_scheme(rounded_floats(8)));
  EXPECT_EQ(method.status().code(), Code::kCorrupt);
  EXPECT_THAT(method.status().message(), HasSubstr("o.weight: row 1 holds a NaN"));

  const auto blocks = kernels::random_quant_matrix(DType::kQ8_0, 2, 32, /*seed=*/1);
  source.add("o.weight", blocks.view());
  EXPECT_THAT(load(shape, source, dynamic_scheme(rounded_floats(8))).status().message(), HasSubstr("o.weight is stored as q8_0"));
}

}  // namespace
}  // namespace choral::quant
