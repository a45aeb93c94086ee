// That the emulation sees the faults of kernels for which it is there, and multiplies fragments as the manual says.
#include <cmath>

#include "kernel_testing.h"
#include "launch.h"
#include "ptx.h"

namespace choral_cuda {
namespace {

template <class Kernel>
void run(int threads, size_t shared_bytes, Kernel kernel) {
  cuda_emulation::run_grid(dim3(1), dim3(threads), shared_bytes, kernel);
}

TEST(Emulation, ThreadsMeetAtBarriers) {
  std::vector<int> out(96);
  run(96, 96 * sizeof(int), [&] {
    int* shared = shared_memory<int>();
    const int i = static_cast<int>(threadIdx.x);
    for (int round = 0; round < 3; ++round) {
      shared[i] = i + round;
      __syncthreads();
      out[i] = shared[95 - i];
      __syncthreads();
    }
  });
  for (int i = 0; i < 96; ++i) EXPECT_EQ(out[i], 95 - i + 2);
}

TEST(EmulationDeathTest, BarrierThatNotAllReach) {
  EXPECT_DEATH(run(64, 0,
                   [] {
                     if (threadIdx.x < 32) __syncthreads();
                   }),
               "warp 0 waits at __syncthreads");
}

TEST(EmulationDeathTest, ShuffleThatNotAllLanesReach) {
  EXPECT_DEATH(run(32, 0,
                   [] {
                     if (threadIdx.x != 3) __shfl_xor_sync(kAllLanes, 1, 1);
                   }),
               "never come");
}

TEST(EmulationDeathTest, LanesInDifferentOperations) {
  EXPECT_DEATH(run(32, 0, [] { threadIdx.x == 3 ? __syncwarp() : void(transpose_8x8(0)); }), "different operations");
}

TEST(Emulation, SharedMemoryBeginsAsNaN) {
  float seen = 0;
  run(32, sizeof(float), [&] { seen = *shared_memory<float>(); });
  EXPECT_TRUE(std::isnan(seen));
}

TEST(Emulation, CopiesArriveWhenWaitedFor) {
  const std::vector<float> from(8, 2.0f);
  float before = 0, between = 0, after = 0;
  run(32, 128, [&] {
    float* shared = shared_memory<float>();
    if (threadIdx.x == 0) {
      for (int i = 0; i < 2; ++i) {
        copy_16_async(shared + 4 * i, from.data() + 4 * i, true);
        commit_async_copies();
      }
      before = shared[0];
      wait_async_copies<1>();
      between = shared[0] + shared[4];
      wait_async_copies<0>();
      after = shared[4];
    }
  });
  EXPECT_TRUE(std::isnan(before) && std::isnan(between));
  EXPECT_EQ(after, 2.0f);
}

// Element (row, column) of A lies in fragments as the manual's table has it; identity times B is B.
TEST(Emulation, FragmentsMultiply) {
  float c[kWarp][4] = {};
  run(32, 0, [&] {
    const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
    const auto one = [&](int row, int k) { return row == k ? 1.0f : 0.0f; };
    const auto b_at = [&](int k, int n) { return static_cast<float>(8 * k + n); };
    const uint32_t a[4] = {pack_bf16(one(g, 2 * t), one(g, 2 * t + 1)), pack_bf16(one(g + 8, 2 * t), one(g + 8, 2 * t + 1)),
                           pack_bf16(one(g, 2 * t + 8), one(g, 2 * t + 9)),
                           pack_bf16(one(g + 8, 2 * t + 8), one(g + 8, 2 * t + 9))};
    const uint32_t b[2] = {pack_bf16(b_at(2 * t, g), b_at(2 * t + 1, g)), pack_bf16(b_at(2 * t + 8, g), b_at(2 * t + 9, g))};
    mma_bf16(c[lane], a, b);
  });
  for (int lane = 0; lane < kWarp; ++lane) {
    for (int i = 0; i < 4; ++i) EXPECT_EQ(c[lane][i], 8.0f * (lane / 4 + i / 2 * 8) + lane % 4 * 2 + i % 2);
  }
}

TEST(Emulation, MatricesAreTurnedOver) {
  uint32_t out[kWarp] = {};
  run(32, 0, [&] {
    const uint32_t lane = threadIdx.x, g = lane / 4, t = lane % 4;
    out[lane] = transpose_8x8((8 * g + 2 * t) | (8 * g + 2 * t + 1) << 16);
  });
  for (uint32_t lane = 0; lane < kWarp; ++lane) {
    EXPECT_EQ(out[lane], (8 * (lane % 4 * 2) + lane / 4) | (8 * (lane % 4 * 2 + 1) + lane / 4) << 16);
  }
}

}  // namespace
}  // namespace choral_cuda
