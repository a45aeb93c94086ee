// When a session on a device gives the host time for work of its own: in a step, before each wait for the device, and at no other
// time.
#include "platform/context.h"
#include "platform/host_view.h"
#include "platform/platform.h"
#include "platform/platform_choice.h"
#include "plugins/cuda_device.h"

namespace choral::plugins {
namespace {

class WaitTest : public PluginTest {
 protected:
  static void expect_work_before_waits(const std::string& device) {
    const auto choice = platform::choose_platform(device);
    ASSERT_TRUE(choice.ok()) << choice.status().message();
    ThreadPool pool(1);
    const auto session = choice->platform->open(pool, {});
    ASSERT_TRUE(session.ok()) << session.status().message();
    const platform::Context ctx(**session, pool, cpu_level());
    int calls = 0;
    ASSERT_TRUE((*session)->on_wait([&] { ++calls; }));
    const auto on_device = ctx.make_matrix(1, 4);
    const std::vector<float> values{1, 2, 3, 4};
    const MatrixView<const float> on_host(values.data(), 1, 4);
    platform::copy_to_device(ctx, on_host, on_device);
    platform::host_copy(ctx, on_device);
    EXPECT_EQ(calls, 0) << "no step is under way";
    (*session)->begin_step({.rows = 1});
    platform::copy_to_device(ctx, on_host, on_device);
    ctx.ops.add(ctx, on_device, on_device);
    EXPECT_EQ(calls, 0) << "nobody waits for what is queued";
    EXPECT_EQ(platform::host_copy(ctx, on_device).row(0)[3], 8);
    EXPECT_EQ(calls, 1);
    EXPECT_TRUE((*session)->end_step({.rows = 1}).ok());
    EXPECT_EQ(calls, 2) << "a step that nobody reads of is waited for at its end";
    platform::host_copy(ctx, on_device);
    EXPECT_EQ(calls, 2);
  }
};

TEST_F(WaitTest, GivesTimeInStepsOnTheReferenceDevice) { expect_work_before_waits("ref_device"); }

#ifdef CHORAL_TEST_CUDA
TEST_F(WaitTest, GivesTimeInStepsOnCuda) {
  const Variable path("CHORAL_PLUGIN_PATH", cuda_folder());
  expect_work_before_waits(cuda_device());
}
#endif

TEST_F(WaitTest, TheCpuNeverWaits) {
  const auto choice = platform::choose_platform("cpu");
  ASSERT_TRUE(choice.ok());
  ThreadPool pool(1);
  const auto session = choice->platform->open(pool, {});
  ASSERT_TRUE(session.ok());
  EXPECT_FALSE((*session)->on_wait([] {}));
}

}  // namespace
}  // namespace choral::plugins
