// What `choral bench` measures on devices: their own peaks where they state them, each operator's time, and the host's share of a
// step.
#include "base/check.h"
#include "plugins/cuda_device.h"
#include "tools/step_timer.h"

namespace choral::plugins {
namespace {

using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;
using tools::OperatorTime;
using tools::StepTimer;

class BenchTest : public PluginTest {
 protected:
  static std::unique_ptr<StepTimer> timer_on(const std::string& device) {
    auto timer = StepTimer::make({.engine = options(device), .synthetic = "", .synthetic_format = "bf16"});
    CHORAL_CHECK(timer.ok(), timer.status().message());
    return std::move(*timer);
  }
  static tools::StepTiming decode(StepTimer& timer, const StepTimer::Cast& cast) {
    const auto timings = timer.decode(4, 16, 3, {&cast, 1});
    CHORAL_CHECK(timings.ok(), timings.status().message());
    return timings->front();
  }
  static auto named(const char* name) { return Field(&OperatorTime::name, name); }
};

void expect_whole(const tools::StepTiming& timing) {
  double operators_s = 0;
  for (const auto& op : timing.operators) {
    EXPECT_GT(op.seconds, 0) << op.name;
    EXPECT_GE(op.calls, 1) << op.name;
    operators_s += op.seconds;
  }
  EXPECT_GT(timing.product_s, 0);
  EXPECT_LT(timing.product_s, operators_s);
  EXPECT_GT(timing.attention_share, 0);
  ASSERT_TRUE(timing.host_s.has_value());
  EXPECT_GT(*timing.host_s, 0);
  EXPECT_LT(*timing.host_s, timing.median_s) << "the host waits for some of a step";
}

TEST_F(BenchTest, ADeviceWithoutPeaksSaysSoAndIsTimed) {
  const auto timer = timer_on("ref_device");
  EXPECT_THAT(timer->model().device, HasSubstr("reference device"));
  const auto peaks = timer->measure_peaks();
  EXPECT_EQ(peaks.status().code(), Code::kUnsupported);
  EXPECT_THAT(peaks.status().message(), HasSubstr("ref_device states no peaks"));
  expect_whole(decode(*timer, {0}));
}

TEST_F(BenchTest, WhatIsMadeOfOthersIsListedAsThese) {
  const Variable no_fused("CHORAL_REF_FUSED", "/no/such/library");
  const auto timing = decode(*timer_on("ref_device"), {0});
  EXPECT_THAT(timing.operators, Contains(named("rms_norm")));
  EXPECT_THAT(timing.operators, Not(Contains(named("add_rms_norm"))));
}

// An adapter of all projections: together in q, k and v, o, gate and up, and down of each of the four layers; else each by
// itself.
TEST_F(BenchTest, AdaptersInSlotsHaveTheirShare) {
  struct Served {
    std::string library, shrink;
    double shrinks, expands;  // of a step
  };
  for (const auto& [library, shrink, shrinks, expands] :
       {Served{"", "lora_shrink", 16, 16}, Served{"/no/such/library", "bgmv_shrink", 28, 28}}) {
    const Variable fused("CHORAL_REF_FUSED", library);
    const auto timer = timer_on("ref_device");
    ASSERT_TRUE(timer->add_adapter(1, 4, 1).ok());
    const auto timing = decode(*timer, {1});
    double called[2] = {0, 0};
    for (const auto& op : timing.operators) {
      if (op.name.find("_shrink") != std::string::npos) called[0] += op.calls;
      if (op.name.find("_expand") != std::string::npos) called[1] += op.calls;
    }
    EXPECT_EQ(called[0], shrinks);
    EXPECT_EQ(called[1], expands);
    EXPECT_THAT(timing.operators, Contains(named(shrink.c_str())));
    EXPECT_GT(timing.shrink_share, 0);
    EXPECT_EQ(decode(*timer, {0}).shrink_share, 0);
  }
}

#ifdef CHORAL_TEST_CUDA
TEST_F(BenchTest, CudaMeasuresItsOwnPeaks) {
  const Variable path("CHORAL_PLUGIN_PATH", cuda_folder());
  const auto timer = timer_on(cuda_device());
  for (int i = 0; i < 2; ++i) {  // before the steps and after them
    const auto peaks = timer->measure_peaks();
    ASSERT_TRUE(peaks.ok()) << peaks.status().message();
    EXPECT_GT(peaks->read_gbps, 0);
    EXPECT_GT(peaks->copy_gbps, 0);
    EXPECT_GT(peaks->fma_gflops, 0);
    EXPECT_GT(peaks->tile_gflops, 0);
    EXPECT_GT(peaks->int8_gops, 0);
    expect_whole(decode(*timer, {0}));
  }
}
#endif

}  // namespace
}  // namespace choral::plugins
