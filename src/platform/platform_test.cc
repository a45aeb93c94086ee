#include "platform/platform.h"

#include <gtest/gtest.h>

#include <array>

#include "platform/custom_op.h"

namespace choral::platform {
namespace {

TEST(Platform, AutoIsTheCpuAndUnknownNamesAreErrors) {
  EXPECT_EQ((*resolve_platform("auto"))->name(), "cpu");
  EXPECT_NE(resolve_platform("tpu").status().message().find("cpu"), std::string::npos);
}

TEST(OpTable, EveryOpHasAProviderAndAVersion) {
  const auto ops = cpu_platform().ops().facts();
  EXPECT_EQ(ops.size(), 12u);
  for (const auto& op : ops) {
    EXPECT_EQ(op.provider, "cpu") << op.name;
    EXPECT_EQ(op.version, 1) << op.name;
  }
}

TEST(OpTable, ProfileCountsCalls) {
  ThreadPool pool(1);
  Arena arena;
  OpProfile profile;
  const Context ctx{cpu_platform(), cpu_platform().ops(), {pool, cpu_level(), arena}, &profile};
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
  const auto none = CustomOpConfig::parse({"none", "+rms_norm"});
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->enabled("rms_norm"));
  EXPECT_FALSE(none->enabled("silu_and_mul"));
  const auto all = CustomOpConfig::parse({"-rms_norm"});
  EXPECT_FALSE(all->enabled("rms_norm"));
  EXPECT_TRUE(all->enabled("silu_and_mul"));
}

TEST(CustomOpConfig, MistakesAreNamed) {
  EXPECT_FALSE(CustomOpConfig::parse({"all", "none"}).ok());
  EXPECT_NE(CustomOpConfig::parse({"+rms_nrom"}).status().message().find("rms_norm"), std::string::npos);
  EXPECT_NE(CustomOpConfig::parse({"rms_norm"}).status().message().find("+name"), std::string::npos);
}

}  // namespace
}  // namespace choral::platform
