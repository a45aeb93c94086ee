// Patches of registry "op": who serves an operator by a plug-in's wish.
#include "platform/platform_choice.h"
#include "platform/session.h"
#include "plugins/plugin_engine.h"

namespace choral::plugins {
namespace {

using platform::Patch;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

class PatchesTest : public PluginTest {
 protected:
  Result<std::unique_ptr<platform::Session>> open(const Patch& patch, bool strict = false) {
    CHORAL_TRY(const auto choice, platform::choose_platform("ref_device"));
    platform::PlatformConfig config;
    config.strict = strict;
    config.op_patches = {patch};
    return choice.platform->open(pool_, config);
  }
  Status refusal(const std::string& key, const std::string& value) { return open(of_op(key, value)).status(); }
  static Patch of_op(const std::string& key, const std::string& value) { return {"try-it", "op", key, value, "a test"}; }

 private:
  ThreadPool pool_{1};
};

TEST_F(PatchesTest, TheNamedProviderServesTheOperator) {
  const std::vector<std::pair<const char*, const char*>> providers{
      {"cpu", "cpu, staged"}, {"native", "native, staged"}, {"ref_device", "ref_device"}};
  for (const auto& [value, provider] : providers) {
    auto session = open(of_op("rotary_embedding", value));
    ASSERT_TRUE(session.ok()) << session.status().message();
    const auto& patched = (*session)->ops().rotary_embedding;
    EXPECT_EQ(patched.provider, provider);
    EXPECT_EQ((*session)->ops().add.provider, "ref_device");
    if (patched.provider == "ref_device") continue;
    EXPECT_EQ(patched.reason, "patch try-it: a test");
    EXPECT_THAT((*session)->take_notes(), Contains(HasSubstr("rotary_embedding is served by the CPU: patch try-it: a test")));
  }
}

TEST_F(PatchesTest, AnOperatorThatTheDeviceLacksIsPatchedToo) {
  const auto session = open(of_op("take_rows", "native"));
  ASSERT_TRUE(session.ok()) << session.status().message();
  EXPECT_EQ((*session)->ops().take_rows.provider, "native, staged");
}

TEST_F(PatchesTest, StrictTakesNoneToTheHost) {
  const std::string why = "rotary_embedding (patch try-it: a test)";
  for (const char* value : {"cpu", "native"}) {
    EXPECT_THAT(open(of_op("rotary_embedding", value), /*strict=*/true).status().message(), HasSubstr(why)) << value;
  }
}

TEST_F(PatchesTest, MistakesAreNamed) {
  const Status provider = refusal("rotary_embedding", "gpu"), op = refusal("rotary", "cpu");
  EXPECT_EQ(provider.code(), Code::kInvalidArgument);
  EXPECT_THAT(provider.message(), AllOf(HasSubstr("patch try-it: op rotary_embedding"), HasSubstr("no provider 'gpu'"),
                                        HasSubstr("cpu, native and ref_device")));
  EXPECT_EQ(op.code(), Code::kInvalidArgument);
  EXPECT_THAT(op.message(), HasSubstr("no operator is called 'rotary'"));
  EXPECT_EQ(refusal("write_kv", "cpu").code(), Code::kUnsupported);
  const Status fused = refusal("add_rms_norm", "cpu");
  EXPECT_EQ(fused.code(), Code::kUnsupported);
  EXPECT_THAT(fused.message(), HasSubstr("registry fuse"));
}

}  // namespace
}  // namespace choral::plugins
