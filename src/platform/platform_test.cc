#include <gtest/gtest.h>

#include <array>

#include "platform/cpu_context_test.h"
#include "platform/custom_op.h"
#include "platform/platform_choice.h"

namespace choral::platform {
namespace {

TEST(Platform, AutoIsTheCpuAndUnknownNamesAreErrors) {
  const auto candidates = find_candidates({});
  EXPECT_EQ(choose_platform("auto", candidates)->platform->name(), "cpu");
  const auto unknown = choose_platform("cppu", candidates).status();
  EXPECT_NE(unknown.message().find("did you mean cpu"), std::string::npos) << unknown.message();
  EXPECT_NE(unknown.message().find("cpu: usable"), std::string::npos) << unknown.message();
}

TEST(OpTable, EveryOpHasAProviderAndAVersion) {
  testing::CpuContext cpu(1);
  const auto ops = (*cpu).ops.facts();
  EXPECT_EQ(ops.size(), AllOps::kSize);
  for (const auto& op : ops) {
    EXPECT_TRUE(op.provider == "cpu" || (op.fused && op.provider == "composed")) << op.name << " by " << op.provider;
    EXPECT_EQ(op.version, 1) << op.name;
  }
}

TEST(OpTable, ProfileCountsCalls) {
  testing::CpuContext cpu(1);
  OpProfile profile;
  Context& ctx = *cpu;
  ctx.profile = &profile;
  std::array<float, 4> x{1, 2, 3, 4}, w{1, 1, 1, 1};
  const MatrixView<float> m(x.data(), 1, 4);
  ctx.ops.rms_norm(ctx, m, w, 1e-6f, m);
  ctx.ops.rms_norm(ctx, m, w, 1e-6f, m);
  ASSERT_EQ(profile.entries().size(), 1u);
  EXPECT_EQ(profile.entries()[0].name, "rms_norm");
  EXPECT_EQ(profile.entries()[0].calls, 2);
  EXPECT_EQ(profile.seconds_of("matmul"), 0.0);
  profile.add_product(10, 4);
  profile.add_product(1, 2);
  EXPECT_EQ(profile.weight_bytes(), 11);
  EXPECT_EQ(profile.flops(), 6);
}

TEST(OpShapes, EachOperatorKnowsWhatItGives) {
  testing::CpuContext cpu(1);
  const OpTable& ops = (*cpu).ops;
  const auto shape = [](auto& op, std::initializer_list<Shape> inputs) {
    const std::vector<Shape> all(inputs);
    const auto result = op.meta(all);
    return result.ok() ? result->to_string() : result.status().message();
  };
  EXPECT_EQ(shape(ops.matmul, {{3, 8}, {5, 8}}), "[3, 5]");
  EXPECT_EQ(shape(ops.matmul, {{3, 8}, {5, 7}}), "x [3, 8] and W [5, 7] differ in k");
  EXPECT_EQ(shape(ops.rms_norm, {{3, 8}, {8}}), "[3, 8]");
  EXPECT_EQ(shape(ops.rms_norm, {{3, 8}, {7}}), "[7] beside x [3, 8]");
  EXPECT_EQ(shape(ops.rms_norm_heads, {{3, 8}, {4}}), "[3, 8]");
  EXPECT_EQ(shape(ops.rms_norm_heads, {{3, 8}, {3}}), "x [3, 8] is not whole heads of 3");
  EXPECT_EQ(shape(ops.silu_and_mul, {{3, 8}}), "[3, 4]");
  EXPECT_EQ(shape(ops.silu_and_mul, {{3, 7}}), "x [3, 7] has no two halves");
  EXPECT_EQ(shape(ops.add_rms_norm, {{3, 8}, {3, 8}, {8}}), "[3, 8]");
  EXPECT_EQ(shape(ops.matmul, {{3, 8}}), "1 inputs where 2 are needed");
}

TEST(CustomOpConfig, AllNonePlusMinus) {
  EXPECT_TRUE(CustomOpConfig().enabled("rms_norm"));
  const auto none = CustomOpConfig::parse("none,+rms_norm");
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->enabled("rms_norm"));
  EXPECT_FALSE(none->enabled("silu_and_mul"));
  const auto all = CustomOpConfig::parse("-rms_norm");
  EXPECT_FALSE(all->enabled("rms_norm"));
  EXPECT_TRUE(all->enabled("silu_and_mul"));
}

TEST(CustomOpConfig, OffBeatsOnAndTheOrderSaysNothing) {
  for (const char* list : {"+rms_norm,-rms_norm", "-rms_norm,+rms_norm", "-rms_norm,all", "+rms_norm,none,-rms_norm"}) {
    EXPECT_FALSE(CustomOpConfig::parse(list)->enabled("rms_norm")) << list;
  }
  EXPECT_TRUE(CustomOpConfig::parse("+rms_norm,none")->enabled("rms_norm"));
}

TEST(CustomOpConfig, MistakesAreNamed) {
  EXPECT_FALSE(CustomOpConfig::parse("all,none").ok());
  EXPECT_NE(CustomOpConfig::parse("+rms_nrom").status().message().find("rms_norm"), std::string::npos);
  EXPECT_NE(CustomOpConfig::parse("rms_norm").status().message().find("+name"), std::string::npos);
}

}  // namespace
}  // namespace choral::platform
