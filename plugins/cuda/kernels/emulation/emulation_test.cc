// That the emulation sees the faults of kernels for which it is there, and multiplies fragments as the manual says.
#include <array>
#include <cmath>

#include "../../emulation/rounding.h"
#include "barriers.h"
#include "kernel_testing.h"
#include "launch.h"
#include "test_weight.h"

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

// B [16, 256] as core matrices one behind the other, k first: element (k, n) is 16·k + n mod 7.
class WarpgroupProducts : public ::testing::Test {
 protected:
  static constexpr uint32_t kColumnBytes = 2 * kCoreBytes;
  static constexpr size_t kBytes = kWarpgroupTiles * kColumnBytes;
  static float b_at(int k, int n) { return static_cast<float>(16 * k + n % 7); }
  static void fill_b() {
    auto* words = shared_memory<uint32_t>();
    for (uint32_t i = threadIdx.x; i < kBytes / 4; i += kWarpgroup) {
      const int n = static_cast<int>(i / 64 * 8 + i % 32 / 4), k = static_cast<int>(i % 64 / 32 * 8 + i % 4 * 2);
      words[i] = pack_bf16(b_at(k, n), b_at(k + 1, n));
    }
    __syncthreads();
  }
  // Row r of A picks k = r mod 16.
  static void pick(uint32_t (&a)[4]) {
    const int g = static_cast<int>(threadIdx.x) % kWarp / 4, t = static_cast<int>(threadIdx.x) % 4;
    for (int i = 0; i < 4; ++i) {
      const int row = g + i % 2 * 8, k = 2 * t + i / 2 * 8;
      a[i] = pack_bf16(row == k ? 1.0f : 0.0f, row == k + 1 ? 1.0f : 0.0f);
    }
  }
  static uint64_t b() { return core_matrices(shared_address(shared_memory<unsigned char>()), kCoreBytes, kColumnBytes); }
};

using WarpgroupProductsDeathTest = WarpgroupProducts;

// A ring of two places, which one thread fills as soon as the others have left them.
TEST(CopyBarriers, HandPlacesFromCopyToReadersAndBack) {
  constexpr int kRounds = 5;
  constexpr uint32_t kBytes = 64;
  alignas(16) uint32_t source[kRounds][kBytes / 4];
  for (int round = 0; round < kRounds; ++round) std::fill_n(source[round], kBytes / 4, 100u + round);
  std::vector<uint32_t> seen;
  run(2 * kWarp, 2 * kBytes + 4 * kBarrierBytes, [&] {
    auto* shared = shared_memory<unsigned char>();
    const uint32_t places = shared_address(shared), there = places + 2 * kBytes, done = there + 2 * kBarrierBytes;
    if (threadIdx.x == 0) {
      for (uint32_t i = 0; i < 2; ++i) start_barrier(there + i * kBarrierBytes, 1), start_barrier(done + i * kBarrierBytes, 2);
    }
    __syncthreads();
    for (uint32_t round = 0; round < kRounds; ++round) {
      const uint32_t place = round % 2, parity = round / 2 % 2;
      if (threadIdx.x == 0) {
        if (round >= 2) wait_phase(done + place * kBarrierBytes, parity ^ 1);
        arrive_and_expect(there + place * kBarrierBytes, kBytes);
        copy_bulk(places + place * kBytes, source[round], kBytes, there + place * kBarrierBytes);
      }
      wait_phase(there + place * kBarrierBytes, parity);
      if (threadIdx.x == kWarp) seen.push_back(reinterpret_cast<uint32_t*>(shared + place * kBytes)[kBytes / 4 - 1]);
      __syncwarp();
      if (threadIdx.x % kWarp == 0) arrive(done + place * kBarrierBytes);
    }
  });
  EXPECT_EQ(seen, (std::vector<uint32_t>{100, 101, 102, 103, 104}));
}

TEST(CopyBarriersDeathTest, EndTheProcessOverWhatADeviceWouldNotDo) {
  const auto with_barrier = [](const std::function<void(uint32_t barrier)>& body) {
    run(kWarp, 128 + kBarrierBytes, [&] {
      if (threadIdx.x == 0) {
        start_barrier(128, 1);
        body(128);
      }
    });
  };
  EXPECT_DEATH(with_barrier([](uint32_t) { arrive(64); }), "was not started");
  EXPECT_DEATH(with_barrier([](uint32_t) { start_barrier(136, 1); }), "a barrier of copies beyond shared memory");
  EXPECT_DEATH(with_barrier([](uint32_t barrier) { copy_bulk(8, nullptr, 16, barrier); }), "no multiple of 16");
  EXPECT_DEATH(with_barrier([](uint32_t barrier) { copy_bulk(128, nullptr, 16, barrier); }),
               "cp.async.bulk beyond shared memory");
  EXPECT_DEATH(with_barrier([](uint32_t barrier) { wait_phase(barrier, 0); }), "waits at a barrier of copies");
  EXPECT_DEATH(with_barrier([](uint32_t barrier) {
                 arrive_and_expect(barrier, 16);
                 arrive(barrier);
               }),
               "more arrivals at a barrier of copies than it counts");
}

TEST_F(WarpgroupProducts, AreThereWhenTheyAreWaitedFor) {
  std::vector<std::array<std::array<float, 4>, kWarpgroupTiles>> sums(kWarpgroup);
  int early = 0;
  run(kWarpgroup, kBytes, [&] {
    fill_b();
    WarpgroupSums<float> c = {};
    uint32_t a[4];
    pick(a);
    for (int group = 0; group < 2; ++group) {
      start_group();
      wgmma_bf16(c, a, b());
      end_group();
    }
    wait_groups<1>();
    early += std::isnan(c[0][0]) ? 1 : 0;
    wait_groups<0>();
    std::memcpy(&sums[threadIdx.x], c, sizeof c);
  });
  EXPECT_EQ(early, kWarpgroup) << "sums of a group that is under way were there";
  for (int thread = 0; thread < kWarpgroup; ++thread) {
    for (int n = 0; n < kWarpgroupTiles; ++n) {
      for (int i = 0; i < 4; ++i) {
        const int lane = thread % kWarp;
        EXPECT_EQ(sums[thread][n][i], 2 * b_at(lane / 4 + i / 2 * 8, n * 8 + lane % 4 * 2 + i % 2));
      }
    }
  }
}

TEST_F(WarpgroupProductsDeathTest, WithoutAFence) {
  EXPECT_DEATH(run(kWarpgroup, kBytes,
                   [] {
                     WarpgroupSums<float> c = {};
                     const uint32_t a[4] = {};
                     wgmma_bf16(c, a, b());
                   }),
               "wgmma without wgmma.fence");
}

TEST_F(WarpgroupProductsDeathTest, OfCopiesThatTheyWereNotShown) {
  const std::vector<float> from(4, 1.0f);
  EXPECT_DEATH(run(kWarpgroup, kBytes,
                   [&] {
                     copy_16_async(shared_memory<unsigned char>(), from.data(), true);
                     commit_async_copies();
                     wait_async_copies<0>();
                     __syncthreads();
                     WarpgroupSums<float> c = {};
                     const uint32_t a[4] = {};
                     start_group();
                     wgmma_bf16(c, a, b());
                   }),
               "without fence.proxy.async");
}

TEST_F(WarpgroupProductsDeathTest, BeyondSharedMemory) {
  EXPECT_DEATH(run(kWarpgroup, kBytes - 128,
                   [] {
                     WarpgroupSums<float> c = {};
                     const uint32_t a[4] = {};
                     start_group();
                     wgmma_bf16(c, a, b());
                     end_group();
                     wait_groups<0>();
                   }),
               "B lies beyond shared memory");
}

// That as many rows of x as each of its forms takes are the warpgroups' at all.
TEST(WarpgroupKernel, IsSeenWhereItRoundsOtherwise) {
  for (const int32_t activations : {CHORAL_X_FULL, CHORAL_X_16}) {
    TestWeight w{.name = "bf16", .stored_dtype = CHORAL_BF16, .dtype = CHORAL_BF16, .activations = activations};
    w.make(20, 128, 1);
    for (const int64_t rows : {20, 40, 70, 140}) {
      TestMatrix x(rows, w.cols), y(rows, w.rows), other(rows, w.rows);
      x.fill(2);
      TestLaunch launch(matmul_scratch_bytes(w.packed, x.rows()), 1);
      Launch queue = launch.get();
      queue.has_wgmma = true;
      ASSERT_EQ(matmul(queue, w.packed, {.x = x.view(), .y = y.view()}), cudaSuccess);
      cuda_emulation::wgmma_rounds_otherwise = true;
      ASSERT_EQ(matmul(queue, w.packed, {.x = x.view(), .y = other.view()}), cudaSuccess);
      cuda_emulation::wgmma_rounds_otherwise = false;
      EXPECT_FALSE(same_bits(y.row(3), other.row(3))) << rows << " rows, x " << activations;
    }
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
