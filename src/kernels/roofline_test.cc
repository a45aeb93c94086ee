#include "kernels/roofline.h"

#include <gtest/gtest.h>

namespace choral::kernels {
namespace {

// No figures: only that every level can be measured and says something.
TEST(MeasurePeaks, EveryLevelHasPeaks) {
  ThreadPool pool(2);
  Arena arena;
  for (const CpuLevel level : {CpuLevel::kBase, cpu_level()}) {
    const MachinePeaks peaks = measure_peaks({pool, level, arena});
    EXPECT_GT(peaks.read_gbps, 0);
    EXPECT_GT(peaks.fma_gflops, 0);
    EXPECT_GT(peaks.int8_gops, 0);
    EXPECT_EQ(peaks.tile_gflops > 0, level == CpuLevel::kAmx);
  }
}

}  // namespace
}  // namespace choral::kernels
