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
  EXPECT_EQ(ops.size(), 16u);
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

TEST(CustomOpConfig, MistakesAreNamed) {
  EXPECT_FALSE(CustomOpConfig::parse("all,none").ok());
  EXPECT_NE(CustomOpConfig::parse("+rms_nrom").status().message().find("rms_norm"), std::string::npos);
  EXPECT_NE(CustomOpConfig::parse("rms_norm").status().message().find("+name"), std::string::npos);
}

}  // namespace
}  // namespace choral::platform
