// What the fusion pass knows of steps: the reads and writes that each kind says of itself, and that a value which somebody still
// reads is not swallowed by a fused operator.
#include "layers/fusion.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "layers/weights_test.h"
#include "platform/cpu_context_test.h"

namespace choral::layers {
namespace {

const Value kA{1, 0, 64}, kB{2, 0, 64}, kC{3, 0, 64};

void expect_access(const Step& step, const std::vector<Value>& reads, const std::vector<Value>& writes) {
  SCOPED_TRACE(step.index());
  const Access access = access_of(step);
  EXPECT_EQ(access.reads, reads);
  EXPECT_EQ(access.writes, writes);
}

TEST(Access, IsSaidByEveryKind) {
  expect_access(NormStep{nullptr, kA, kB}, {kA}, {kB});
  expect_access(HeadsNormStep{nullptr, kA}, {kA}, {kA});
  expect_access(PartsNormStep{nullptr, kA, 2}, {kA}, {kA});
  expect_access(RotaryStep{nullptr, kA, kB}, {kA, kB}, {kA, kB});
  expect_access(WriteKvStep{nullptr, kA, kB}, {kA, kB}, {});
  expect_access(AttendStep{nullptr, kA, kB}, {kA}, {kB});
  expect_access(LinearStep{nullptr, kA, kB, false}, {kA}, {kB});
  expect_access(LinearStep{nullptr, kA, kB, true}, {kA, kB}, {kB});
  expect_access(ActivationStep{nullptr, kA, kB}, {kA}, {kB});
  expect_access(ReorderStep{nullptr, kA, kB}, {kA}, {kB});
  expect_access(GateStep{kernels::Activation::kSigmoid, kA, kB}, {kA, kB}, {kB});
  expect_access(AddStep{kA, kB}, {kA, kB}, {kB});
  expect_access(ScaleStep{kA, 2}, {kA}, {kA});
  expect_access(ScaleByPositionStep{{}, kA}, {kA}, {kA});
  expect_access(SubtractMeanStep{kA, kB}, {kA}, {kB});
  expect_access(PluggedStep{nullptr, kA, kB, true}, {kA, kB}, {kB});
  expect_access(PluggedStep{nullptr, kA, kB, false}, {kA}, {kB});
  expect_access(GatedAddStep{nullptr, kA, kB, kC}, {kA, kB, kC}, {kC});
  expect_access(GatherStep{kA, nullptr}, {kA}, {kA});
  expect_access(AddNormStep{nullptr, kA, kB, kC}, {kA, kB}, {kB, kC});
  expect_access(QkNormRotaryStep{nullptr, nullptr, nullptr, kA, kB}, {kA, kB}, {kA, kB});
  expect_access(RotaryWriteKvStep{nullptr, nullptr, kA, kB, kC}, {kA, kB, kC}, {kA, kB});
  expect_access(NormLinearStep{nullptr, nullptr, kA, kB, kC, false}, {kA}, {kB, kC});
  expect_access(NormLinearStep{nullptr, nullptr, kA, kB, kC, true}, {kA, kC}, {kB, kC});
  expect_access(ActivationLinearStep{nullptr, nullptr, kA, kB, kC, false}, {kA}, {kB, kC});
  expect_access(ActivationLinearStep{nullptr, nullptr, kA, kB, kC, true}, {kA, kC}, {kB, kC});
  static_assert(std::variant_size_v<Step> == 22, "a new kind of step belongs into this list");
}

// A projection whose weights take quantised rows. Nothing here is run.
class Quantised : public quant::LinearMethod {
 public:
  void create_weights(const quant::LinearShape&, quant::ParameterSet&) override {}
  Status process_weights_after_loading(const platform::Context&, const quant::WeightRequest&, const quant::LinearShape&,
                                       quant::ParameterSet&, quant::PackedLayers*) override {
    return {};
  }
  void apply(const platform::Context&, MatrixView<const float>, const kernels::Epilogue&, MatrixView<float>) const override {}
  std::optional<kernels::RowForm> quantised_input(CpuLevel) const override { return kernels::RowForm{}; }
  void gather_rows(const platform::Context&, platform::IndexArray<int32_t>, MatrixView<float>) const override {}
  Status read_row(int64_t, std::span<float>) const override { return {}; }
  std::span<const float> bias() const override { return {}; }
  std::string scheme() const override { return "FLOAT"; }
  std::string why() const override { return "a test"; }
  int64_t size_bytes() const override { return 0; }
  std::string format() const override { return "none"; }
  std::string kernel_name(CpuLevel) const override { return "none"; }
};
class QuantisedConfig : public quant::QuantConfig {
 public:
  Result<quant::LayerScheme> scheme_for(quant::LayerKind, std::string_view) const override {
    return quant::LayerScheme{quant::float_scheme(), "a test"};
  }
  Result<std::unique_ptr<quant::LinearMethod>> get_quant_method(quant::LayerKind, const quant::LinearShape&) const override {
    return std::unique_ptr<quant::LinearMethod>(std::make_unique<Quantised>());
  }
};

class FusionTest : public ::testing::Test {
 protected:
  static constexpr int64_t kHidden = 64;

  void SetUp() override {
    ASSERT_TRUE(norm_->load_weights(weights_).ok());
    ASSERT_TRUE(norm_->process_weights_after_loading(*cpu_, weights_).ok());
    graph_.add(NormStep{norm_.get(), graph_.residual(), normed_});
    graph_.add(LinearStep{linear_.get(), normed_, out_, false});
  }
  // How often the norm and the projection of its result became one.
  int fused() {
    for (const auto& decision : fuse(graph_, *cpu_, {})) {
      if (decision.op == "rms_norm_quantise") return decision.sites;
    }
    ADD_FAILURE() << "no decision on rms_norm_quantise";
    return 0;
  }

  platform::testing::CpuContext cpu_;
  QuantisedConfig quant_config_;
  platform::CustomOpConfig custom_ops_;
  platform::LayerOverrides overrides_;
  PatternWeights weights_;
  Builder builder_{cpu_.session(), quant_config_, custom_ops_, overrides_};
  std::unique_ptr<RMSNorm> norm_ = builder_.make<RMSNorm>({.prefix = "norm", .size = kHidden});
  std::unique_ptr<ReplicatedLinear> linear_ =
      builder_.make<ReplicatedLinear>({.prefix = "linear", .in = kHidden, .out = kHidden, .bias = false});
  Graph graph_{kHidden};
  Value normed_ = graph_.matrix(kHidden), out_ = graph_.matrix(kHidden);
};

TEST_F(FusionTest, AResultThatNobodyReadsLaterIsSwallowed) {
  graph_.add(PluggedStep{nullptr, out_, graph_.residual()});
  EXPECT_EQ(fused(), 1);
}

TEST_F(FusionTest, ANormWithABiasIsSwallowedWithIt) {
  weights_.biased_ = "norm";
  ASSERT_TRUE(norm_->load_weights(weights_).ok());
  ASSERT_TRUE(norm_->process_weights_after_loading(*cpu_, weights_).ok());
  EXPECT_EQ(std::ssize(norm_->bias()), kHidden);
  EXPECT_EQ(fused(), 1);
}

TEST_F(FusionTest, AResultThatIsReadLaterStays) {
  graph_.add(PluggedStep{nullptr, normed_, graph_.residual()});
  EXPECT_EQ(fused(), 0);
}

TEST_F(FusionTest, APartOfItIsReason) {
  graph_.add(PluggedStep{nullptr, normed_.columns(60, 4), graph_.residual()});
  EXPECT_EQ(fused(), 0);
}

TEST_F(FusionTest, AStepThatWorksInPlaceReadsIt) {
  graph_.add(PluggedStep{nullptr, out_, normed_});
  EXPECT_EQ(fused(), 0);
}

TEST_F(FusionTest, ReadingANewContentIsNoReason) {
  graph_.add(NormStep{norm_.get(), out_, normed_});
  graph_.add(PluggedStep{nullptr, normed_, graph_.residual()});
  EXPECT_EQ(fused(), 1);
}

TEST_F(FusionTest, ANewContentOfAPartLeavesTheRest) {
  graph_.add(PluggedStep{nullptr, out_.columns(0, 32), graph_.residual()});
  graph_.add(AttendStep{nullptr, out_.columns(0, 32), normed_.columns(0, 32)});
  graph_.add(PluggedStep{nullptr, normed_, graph_.residual()});
  EXPECT_EQ(fused(), 0);
}

}  // namespace
}  // namespace choral::layers
