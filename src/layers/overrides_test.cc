// One attention block with three strangers in it: its norm replaced as a CustomOp, the projection beside it through its quant
// method, the block replaced whole as a PluggableLayer. Nobody else notices.
#include <gtest/gtest.h>

#include <algorithm>

#include "layers/fusion.h"
#include "layers/self_attention.h"
#include "layers/weights_test.h"
#include "platform/cpu_context_test.h"

namespace choral::layers {
namespace {

// An RMSNorm of somebody else's: twice the usual.
class LoudNorm : public RMSNorm {
 public:
  using RMSNorm::RMSNorm;
  void forward_heads(const platform::Context& ctx, MatrixView<float> x, const lora::PunicaWrapper* lora) const override {
    RMSNorm::forward_heads(ctx, x, lora);
    ctx.ops.add(ctx, x, x);
    ++calls;
  }
  bool may_fuse(std::string_view) const override { return false; }
  static inline int calls = 0;
};

// A quant method of somebody else's: o_proj passes its input on, everything else is as it was.
class PassOn : public quant::LinearMethod {
 public:
  void create_weights(const quant::LinearShape&, quant::ParameterSet&) override {}
  Status process_weights_after_loading(const platform::Context&, const quant::WeightRequest&, const quant::LinearShape&,
                                       quant::ParameterSet&, quant::PackedLayers*) override {
    return {};
  }
  void apply(const platform::Context& ctx, MatrixView<const float> x, const kernels::Epilogue&,
             MatrixView<float> y) const override {
    ctx.ops.add(ctx, x, y);
  }
  void gather_rows(const platform::Context&, platform::IndexArray<int32_t>, MatrixView<float>) const override {}
  Status read_row(int64_t, std::span<float>) const override { return {}; }
  std::span<const float> bias() const override { return {}; }
  std::string scheme() const override { return "FLOAT"; }
  std::string why() const override { return "a test"; }
  int64_t size_bytes() const override { return 0; }
  std::string format() const override { return "none"; }
  std::string kernel_name(CpuLevel) const override { return "pass on"; }
};
class PassOnConfig : public quant::QuantConfig {
 public:
  Result<quant::LayerScheme> scheme_for(quant::LayerKind, std::string_view) const override {
    return quant::LayerScheme{quant::float_scheme(), "a test"};
  }
  Result<std::unique_ptr<quant::LinearMethod>> get_quant_method(quant::LayerKind kind,
                                                                const quant::LinearShape& shape) const override {
    if (shape.shard_names.front().ends_with(".o_proj")) return std::unique_ptr<quant::LinearMethod>(std::make_unique<PassOn>());
    return usual_->get_quant_method(kind, shape);
  }

 private:
  std::unique_ptr<quant::QuantConfig> usual_ = *quant::make_quant_config({}, "auto");
};

// A whole block of somebody else's: h += 3·x.
class TripleBlock : public SelfAttention, public PluggedBlock {
 public:
  using SelfAttention::SelfAttention;
  void describe(Graph& graph, Value x, const Output& out) const override { graph.add(PluggedStep{this, x, out.y, out.add}); }
  void forward(const platform::Context& ctx, const ForwardBatch&, MatrixView<const float> x, bool add,
               MatrixView<float> y) const override {
    EXPECT_TRUE(add);
    for (int i = 0; i < 3; ++i) ctx.ops.add(ctx, x, y);
  }
};

class OverridesTest : public ::testing::Test {
 protected:
  static constexpr int64_t kHidden = 64, kRows = 2;

  // One block on two rows of a sequence: what it adds to zero.
  std::vector<float> run() {
    Builder builder{cpu_.session(), *quant_config_, custom_ops_, overrides_};
    const auto rotary = builder.make<RotaryEmbedding>({.head_dim = 16, .rotary_dim = 16, .max_positions = 8});
    const SelfAttention::Spec spec{.prefix = "attn",
                                   .hidden = kHidden,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .head_dim = 16,
                                   .qk_norm = QkNorm::kEachHead,
                                   .rotary = rotary.get()};
    const auto block = builder.make<SelfAttention>(spec);
    EXPECT_TRUE(builder.status.ok()) << builder.status.message();
    for (auto* module : builder.modules) {
      EXPECT_TRUE(module->load_weights(weights_).ok());
      EXPECT_TRUE(module->process_weights_after_loading(*cpu_, weights_).ok());
    }
    auto keys = *cpu_.session().allocate_kv(DType::kF32, {1, 2 * 16 * 32});
    auto values = *cpu_.session().allocate_kv(DType::kF32, {1, 2 * 16 * 32});
    block->bind_kv_cache({.cache = {keys.data(), values.data(), DType::kF32, 1, 2, 16, 16}});

    Graph graph(kHidden);
    const Value x = graph.matrix(kHidden);
    graph.add(copy_step(graph.residual(), x));
    block->describe(graph, x, {graph.residual(), true});
    decisions_ = fuse(graph, *cpu_, {});

    std::vector<float> h(kRows * kHidden);
    for (size_t i = 0; i < h.size(); ++i) h[i] = static_cast<float>(static_cast<int>(i * 37 % 19) - 9) / 9.0F;
    input_ = h;
    const std::vector<int32_t> ids{0, 0}, positions{0, 1}, table{0};
    const std::vector<int64_t> slots{0, 1};
    const std::vector<kernels::AttentionSequence> sequences{{.query_begin = 0, .query_count = 2, .block_table = table}};
    const std::vector<KvRows> rows{
        {.slots = place_indices(*cpu_, std::span<const int64_t>(slots)), .sequences = cpu_.session().place_sequences(sequences)}};
    const ForwardBatch batch{.token_ids = place_indices(*cpu_, std::span<const int32_t>(ids)),
                             .positions = place_indices(*cpu_, std::span<const int32_t>(positions)),
                             .kv_groups = rows};
    graph.run(*cpu_, batch, {h.data(), kRows, kHidden});
    for (size_t i = 0; i < h.size(); ++i) h[i] -= input_[i];
    return h;
  }

  // x = h, written as a step.
  class Copy : public PluggedBlock {
   public:
    void forward(const platform::Context&, const ForwardBatch&, MatrixView<const float> from, bool,
                 MatrixView<float> to) const override {
      for (int64_t r = 0; r < from.rows; ++r) std::copy_n(from.row(r), from.cols, to.row(r));
    }
  };
  PluggedStep copy_step(Value from, Value to) { return {&copy_, from, to, false}; }

  const FusionDecision& decision(std::string_view op) const {
    return *std::find_if(decisions_.begin(), decisions_.end(), [&](const auto& d) { return d.op == op; });
  }

  platform::testing::CpuContext cpu_;
  std::unique_ptr<quant::QuantConfig> quant_config_ = *quant::make_quant_config({}, "auto");
  platform::CustomOpConfig custom_ops_;
  platform::LayerOverrides overrides_;
  PatternWeights weights_;
  Copy copy_;
  std::vector<float> input_;
  std::vector<FusionDecision> decisions_;
};

TEST_F(OverridesTest, ItsOwnFormsAreFused) {
  run();
  EXPECT_EQ(decision("qk_norm_rope").sites, 1);
  EXPECT_EQ(decision("rope_write_kv").sites, 0) << "the longer pattern took the rotation";
}

TEST_F(OverridesTest, ANormIsReplacedAsACustomOp) {
  const auto usual = run();
  ASSERT_TRUE((overrides_.replace<RMSNorm, Builder>("rms_norm", [](Builder& builder, const RMSNorm::Spec& spec) {
                return std::make_unique<LoudNorm>(builder, spec);
              })).ok());
  LoudNorm::calls = 0;
  const auto loud = run();
  EXPECT_EQ(LoudNorm::calls, 2);  // q and k
  EXPECT_NE(loud, usual);
  EXPECT_EQ(decision("qk_norm_rope").sites, 0) << "a fused operator must not pass a replaced norm by";
}

TEST_F(OverridesTest, AProjectionIsReplacedThroughItsQuantMethod) {
  const auto usual = run();
  quant_config_ = std::make_unique<PassOnConfig>();
  const auto passed_on = run();
  EXPECT_NE(passed_on, usual);
  EXPECT_EQ(decision("qk_norm_rope").sites, 1) << "what stands beside it is as it was";
}

TEST_F(OverridesTest, ABlockIsReplacedWhole) {
  ASSERT_TRUE(
      (overrides_.replace<SelfAttention, Builder>("self_attention", [](Builder& builder, const SelfAttention::Spec& spec) {
        return std::make_unique<TripleBlock>(builder, spec);
      })).ok());
  const auto tripled = run();
  for (size_t i = 0; i < tripled.size(); ++i) EXPECT_NEAR(tripled[i], 3 * input_[i], 1e-5F);
}

TEST_F(OverridesTest, ANameThatNobodyDeclaresIsRefused) {
  const auto status = overrides_.replace<RMSNorm, Builder>("rms_nrom", {});
  EXPECT_NE(status.message().find("rms_nrom"), std::string::npos);
  EXPECT_NE(status.message().find("never be used"), std::string::npos);
}

TEST_F(OverridesTest, AGraphWhoseMatricesDoNotFitIsNamed) {
  Builder builder{cpu_.session(), *quant_config_, custom_ops_, overrides_};
  const auto norm = builder.make<RMSNorm>({.prefix = "norm", .size = kHidden});
  Graph graph(kHidden);
  graph.add(NormStep{norm.get(), graph.residual(), graph.residual()});
  EXPECT_TRUE(graph.check_shapes((*cpu_).ops).ok());
  graph.add(NormStep{norm.get(), graph.residual(), graph.matrix(kHidden + 1)});
  const auto message = graph.check_shapes((*cpu_).ops).message();
  EXPECT_NE(message.find("step 1 of the model"), std::string::npos) << message;
  EXPECT_NE(message.find("[1, 65]"), std::string::npos) << message;
}

TEST_F(OverridesTest, FusionCanBeSwitchedOffAndInsistedOn) {
  EXPECT_EQ(FusionConfig().wish("qk_norm_rope"), FusionConfig::Wish::kIfItPays);
  const auto one = *FusionConfig::parse("none,+rope_write_kv");
  EXPECT_EQ(one.wish("qk_norm_rope"), FusionConfig::Wish::kNever);
  EXPECT_EQ(one.wish("rope_write_kv"), FusionConfig::Wish::kAlways);
  for (const char* list : {"+rope_write_kv,none", "none,+rope_write_kv"}) {
    EXPECT_EQ(FusionConfig::parse(list)->wish("rope_write_kv"), FusionConfig::Wish::kAlways) << list;
  }
  for (const char* list : {"-rope_write_kv,all", "+rope_write_kv,-rope_write_kv", "-rope_write_kv,+rope_write_kv"}) {
    EXPECT_EQ(FusionConfig::parse(list)->wish("rope_write_kv"), FusionConfig::Wish::kNever) << list;
  }
  EXPECT_FALSE(FusionConfig::parse("all,none").ok());
  auto patched = one;
  ASSERT_TRUE(patched.force("rope_write_kv", false).ok());
  EXPECT_EQ(patched.wish("rope_write_kv"), FusionConfig::Wish::kNever);
  EXPECT_FALSE(FusionConfig::parse("+nothing").ok());
}

}  // namespace
}  // namespace choral::layers
