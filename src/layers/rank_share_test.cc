// How layers are divided over ranks: evenly, by heads of keys, and where the weights' scheme lets them.
#include "layers/rank_share.h"

#include <gmock/gmock.h>

#include "layers/every_scheme_test.h"
#include "layers/gated_mlp.h"
#include "layers/self_attention.h"
#include "platform/cpu_context_test.h"

namespace choral::layers {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(RankShare, IsEvenInWholeUnits) {
  EXPECT_THAT(share_begins(576, 16, 2), ElementsAre(0, 288, 576));
  EXPECT_THAT(share_begins(100, 16, 3), ElementsAre(0, 32, 64, 100));
  EXPECT_THAT(share_begins(2, 1, 3), ElementsAre(0, 0, 1, 2));
}

class DividedLayers : public ::testing::Test {
 protected:
  // What a rank holds of the first layer that adapters may change: begin and number of each run of outputs.
  template <class Layer>
  std::vector<std::pair<int64_t, int64_t>> held(const quant::QuantConfig& config, const typename Layer::Spec& spec, int rank) {
    Builder builder{cpu_.session(), config, ops_, overrides_, {rank, 2}};
    const Layer layer(builder, spec);
    EXPECT_TRUE(builder.status.ok()) << builder.status.to_string();
    std::vector<std::pair<int64_t, int64_t>> runs;
    for (const auto& columns : builder.lora_targets.front().held) runs.emplace_back(columns.of, columns.count);
    return runs;
  }

  platform::testing::CpuContext cpu_;
  platform::CustomOpConfig ops_;
  platform::LayerOverrides overrides_;
  OneScheme floats_{quant::float_scheme()}, blocks_{quant::fp8_scheme({.rows = 128, .cols = 128})};
};

TEST_F(DividedLayers, AnMlpIsCutAtWholePanelsOrBlocks) {
  const GatedMlp::Spec spec{.prefix = "mlp", .hidden = 128, .intermediate = 320, .hidden_act = "silu"};
  using Run = std::pair<int64_t, int64_t>;
  EXPECT_THAT(held<GatedMlp>(floats_, spec, 0), ElementsAre(Run(0, 160), Run(320, 160)));
  EXPECT_THAT(held<GatedMlp>(floats_, spec, 1), ElementsAre(Run(160, 160), Run(480, 160)));
  EXPECT_THAT(held<GatedMlp>(blocks_, spec, 0), ElementsAre(Run(0, 128), Run(320, 128)));
  EXPECT_THAT(held<GatedMlp>(blocks_, spec, 1), ElementsAre(Run(128, 192), Run(448, 192)));
}

// A block of rows has parts of two heads, so attention is not divided, and its projection shares its rows out by itself.
TEST_F(DividedLayers, HeadsThatABlockHasTogetherAreNotParted) {
  SelfAttention::Spec spec{.prefix = "attn", .hidden = 128, .heads = 8, .kv_heads = 2, .head_dim = 96};
  using Run = std::pair<int64_t, int64_t>;
  EXPECT_THAT(held<SelfAttention>(floats_, spec, 1), ElementsAre(Run(384, 384), Run(864, 96), Run(1056, 96)));
  EXPECT_THAT(held<SelfAttention>(blocks_, spec, 1), ElementsAre(Run(512, 640)));
  spec.head_dim = 128;
  EXPECT_THAT(held<SelfAttention>(blocks_, spec, 1), ElementsAre(Run(512, 512), Run(1152, 128), Run(1408, 128)));
}

}  // namespace
}  // namespace choral::layers
