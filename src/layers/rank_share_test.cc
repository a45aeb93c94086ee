// How layers are divided over ranks: evenly, by heads of keys, and where the weights' scheme lets them.
#include "layers/rank_share.h"

#include <gmock/gmock.h>

#include "layers/every_scheme_test.h"
#include "layers/gated_delta_net.h"
#include "layers/gated_mlp.h"
#include "layers/latent_attention.h"
#include "layers/mamba2.h"
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

TEST(RankShare, HeadsGoByGroupsOrShareOne) {
  const auto heads = [](int rank, int ranks, int64_t all, int64_t groups) {
    const HeadShare share = share_heads({rank, ranks}, all, groups);
    return std::vector{share.heads.begin, share.heads.count, share.groups.begin, share.groups.count};
  };
  EXPECT_THAT(heads(1, 2, 9, 3), ElementsAre(3, 6, 1, 2));
  EXPECT_THAT(heads(3, 4, 8, 2), ElementsAre(6, 2, 1, 1));
  EXPECT_THAT(heads(1, 2, 5, 1), ElementsAre(2, 3, 0, 1));
  EXPECT_THAT(heads(1, 3, 8, 2), ElementsAre(0, 8, 0, 2)) << "two groups do not go into three";
  EXPECT_THAT(heads(1, 4, 2, 2), ElementsAre(0, 2, 0, 2)) << "fewer heads than ranks";
  EXPECT_THAT(share_heads({1, 2}, 9, 3).begins, ElementsAre(0, 3, 9));
  EXPECT_THAT(share_heads({0, 1}, 9, 3).begins, IsEmpty());
  EXPECT_THAT(column_begins(share_heads({1, 2}, 9, 3), 16), ElementsAre(0, 48, 144));
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

TEST_F(DividedLayers, LatentsAreMetByOwnHeads) {
  Builder builder{cpu_.session(), floats_, ops_, overrides_};
  const RotaryEmbedding rotary(builder, {.head_dim = 16, .rotary_dim = 16});
  const LatentAttention::Spec spec{.prefix = "attn",
                                   .hidden = 128,
                                   .heads = 6,
                                   .q_rank = 0,
                                   .kv_rank = 64,
                                   .nope_dim = 32,
                                   .rope_dim = 16,
                                   .value_dim = 32,
                                   .rotary = &rotary};
  using Run = std::pair<int64_t, int64_t>;
  EXPECT_THAT(held<LatentAttention>(floats_, spec, 1), ElementsAre(Run(144, 144)));
  EXPECT_THAT(held<LatentAttention>(blocks_, spec, 1), ElementsAre(Run(128, 160))) << "heads of 48 rows are not parted at 128";
}

TEST_F(DividedLayers, AStateIsOfOwnHeadsAndTheirGroups) {
  using Run = std::pair<int64_t, int64_t>;
  const Mamba2::Spec mamba{
      .prefix = "mixer", .hidden = 64, .groups = 1, .heads = 4, .head_dim = 16, .state_dim = 8, .conv_taps = 4};
  EXPECT_THAT(held<Mamba2>(floats_, mamba, 1), ElementsAre(Run(32, 32), Run(96, 32), Run(128, 8), Run(136, 8), Run(146, 2)));
  GatedDeltaNet::Spec net{
      .prefix = "mixer", .hidden = 64, .key_heads = 2, .value_heads = 4, .key_dim = 8, .value_dim = 16, .conv_taps = 4};
  EXPECT_THAT(held<GatedDeltaNet>(floats_, net, 1), ElementsAre(Run(8, 8), Run(24, 8), Run(64, 32), Run(128, 32)));
  net.heads_in_turns = true;
  EXPECT_THAT(held<GatedDeltaNet>(floats_, net, 1), ElementsAre(Run(80, 80)));
  net.key_heads = 1;  // of both ranks
  EXPECT_THAT(held<GatedDeltaNet>(floats_, net, 1), ElementsAre(Run(0, 8), Run(8, 8), Run(48, 32), Run(112, 32)));
}

}  // namespace
}  // namespace choral::layers
