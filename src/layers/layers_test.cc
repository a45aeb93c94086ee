// Layers as a device would see them: native and kernel forms agree, fused linears equal their parts, errors name the layer.
#include <gtest/gtest.h>

#include <cmath>

#include "base/float16.h"
#include "layers/activation.h"
#include "layers/rms_norm.h"
#include "layers/rotary_embedding.h"
#include "layers/vocab_embedding.h"
#include "layers/weights_test.h"
#include "platform/cpu_context_test.h"

namespace choral::layers {
namespace {

class LayersTest : public ::testing::Test {
 protected:
  Builder builder(const platform::CustomOpConfig& ops) { return {cpu_.session(), *quant_config_, ops, overrides_}; }
  Status load(Module& module) {
    CHORAL_RETURN_IF_ERROR(module.load_weights(weights_));
    return module.process_weights_after_loading(ctx_, weights_);
  }
  std::vector<float> pattern(int64_t n) {
    std::vector<float> x;
    for (int64_t i = 0; i < n; ++i) x.push_back(std::sin(static_cast<float>(i) * 0.7f));
    return x;
  }

  platform::testing::CpuContext cpu_;
  platform::Context& ctx_ = *cpu_;
  platform::LayerOverrides overrides_;
  std::unique_ptr<quant::QuantConfig> quant_config_ = *quant::make_quant_config({}, "auto");
  platform::CustomOpConfig all_;
  platform::CustomOpConfig none_ = *platform::CustomOpConfig::parse("none");
  PatternWeights weights_;
};

TEST_F(LayersTest, FusedProjectionsEqualTheirParts) {
  constexpr int64_t kIn = 24, kRows = 5;
  auto b = builder(all_);
  QKVParallelLinear qkv(b, {.prefix = "attn.qkv_proj", .in = kIn, .head_dim = 8, .heads = 3, .kv_heads = 1, .bias = true});
  ColumnParallelLinear q(b, {"attn.q_proj", kIn, 24, true}), k(b, {"attn.k_proj", kIn, 8, true}),
      v(b, {"attn.v_proj", kIn, 8, true});
  ASSERT_TRUE(b.status.ok());
  for (Module* module : b.modules) ASSERT_TRUE(load(*module).ok());
  auto x = pattern(kRows * kIn);
  std::vector<float> fused(kRows * 40), parts(kRows * 40);
  const MatrixView<float> in(x.data(), kRows, kIn), one(fused.data(), kRows, 40), three(parts.data(), kRows, 40);
  qkv.forward(ctx_, in, one);
  q.forward(ctx_, in, three.sub_cols(0, 24));
  k.forward(ctx_, in, three.sub_cols(24, 8));
  v.forward(ctx_, in, three.sub_cols(32, 8));
  EXPECT_EQ(fused, parts);
}

TEST_F(LayersTest, ForwardAddIsTheResidual) {
  auto b = builder(all_);
  RowParallelLinear linear(b, {"o_proj", 16, 16, false});
  ASSERT_TRUE(load(linear).ok());
  auto x = pattern(16);
  std::vector<float> y(16), h = pattern(16);
  linear.forward(ctx_, {x.data(), 1, 16}, {y.data(), 1, 16});
  const auto before = h;
  linear.forward_add(ctx_, {x.data(), 1, 16}, {h.data(), 1, 16});
  for (size_t i = 0; i < h.size(); ++i) EXPECT_EQ(h[i], y[i] + before[i]);
}

TEST_F(LayersTest, AMissingTensorIsNamed) {
  auto b = builder(all_);
  QKVParallelLinear qkv(b, {.prefix = "attn.qkv_proj", .in = 24, .head_dim = 8, .heads = 3, .kv_heads = 1, .bias = true});
  weights_.missing_ = "attn.k_proj.bias";
  EXPECT_NE(load(qkv).message().find("attn.k_proj.bias"), std::string::npos);
}

TEST_F(LayersTest, TheEmbeddingReadsTheHeadsMatrix) {
  constexpr int64_t kVocab = 50, kHidden = 16;
  auto b = builder(all_);
  VocabParallelEmbedding table(b, {"embed", kVocab, kHidden});
  ASSERT_TRUE(load(table).ok());
  const std::vector<int32_t> ids{49, 0, 17};
  std::vector<float> rows(ids.size() * kHidden);
  table.lookup(ctx_, place_indices(ctx_, std::span<const int32_t>(ids)), {rows.data(), 3, kHidden});
  std::vector<float> logits(3 * kVocab);
  table.forward(ctx_, {rows.data(), 3, kHidden}, {logits.data(), 3, kVocab});
  for (int i = 0; i < 3; ++i) {  // row i · row ids[i] is the row's own square
    float square = 0;
    for (int64_t j = 0; j < kHidden; ++j) square += rows[i * kHidden + j] * rows[i * kHidden + j];
    EXPECT_NEAR(logits[i * kVocab + ids[i]], square, 1e-4f);
  }
}

TEST_F(LayersTest, NativeFormsAgreeWithKernels) {
  constexpr int64_t kRows = 3, kHidden = 64;
  auto fast_builder = builder(all_), plain_builder = builder(none_);
  RMSNorm fast(fast_builder, {"norm", kHidden, 1e-5f}), plain(plain_builder, {"norm", kHidden, 1e-5f});
  EXPECT_EQ(fast.form(), platform::OpForm::kCpu);
  EXPECT_EQ(plain.form(), platform::OpForm::kNative);
  ASSERT_TRUE(load(fast).ok());
  ASSERT_TRUE(load(plain).ok());
  auto x = pattern(kRows * kHidden);
  std::vector<float> a(x.size()), b(x.size());
  fast.forward(ctx_, {x.data(), kRows, kHidden}, {a.data(), kRows, kHidden});
  plain.forward(ctx_, {x.data(), kRows, kHidden}, {b.data(), kRows, kHidden});
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5f);

  const kernels::RotaryParams rope{.head_dim = 16, .rotary_dim = 16, .max_positions = 64};
  const RotaryEmbedding fast_rope(fast_builder, rope), plain_rope(plain_builder, rope);
  const std::vector<int32_t> positions{0, 5, 63};
  const auto placed = place_indices(ctx_, std::span<const int32_t>(positions));
  auto q1 = x, k1 = x, q2 = x, k2 = x;
  fast_rope.forward(ctx_, placed, {q1.data(), kRows, kHidden}, {k1.data(), kRows, kHidden});
  plain_rope.forward(ctx_, placed, {q2.data(), kRows, kHidden}, {k2.data(), kRows, kHidden});
  for (size_t i = 0; i < q1.size(); ++i) EXPECT_NEAR(q1[i], q2[i], 1e-5f);

  const auto expect_agreement = [&](const GatedActivation& fast_act, const GatedActivation& plain_act) {
    std::vector<float> c(x.size() / 2), d(x.size() / 2);
    fast_act.forward(ctx_, {x.data(), kRows, kHidden}, {c.data(), kRows, kHidden / 2});
    plain_act.forward(ctx_, {x.data(), kRows, kHidden}, {d.data(), kRows, kHidden / 2});
    for (size_t i = 0; i < c.size(); ++i) EXPECT_NEAR(c[i], d[i], 1e-6f);
  };
  expect_agreement(GatedActivation(fast_builder, {"silu"}), GatedActivation(plain_builder, {"silu"}));
  const kernels::ClampedSwiglu form{.limit = 0.5f};
  expect_agreement(SwigluOAIAndMul(fast_builder, form), SwigluOAIAndMul(plain_builder, form));
}

TEST_F(LayersTest, AnUnknownActivationIsAnError) {
  auto b = builder(all_);
  const GatedActivation act(b, {"swooosh"});
  EXPECT_NE(b.status.message().find("swooosh"), std::string::npos);
}

}  // namespace
}  // namespace choral::layers
