// Several devices of the emulated runtime: what CUDA refuses where a thread mistakes one for another.
#include <gmock/gmock.h>

#include <cstdlib>

#include "queue.h"
#include "runtime_api.h"

namespace cuda_emulation {
namespace {

TEST(SeveralDevices, AreNotMistakenForEachOther) {
  setenv("CHORAL_CUDA_EMULATION", "devices=2", 1);
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  unsetenv("CHORAL_CUDA_EMULATION");
  EXPECT_EQ(count, 2);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  cudaStream_t streams[2] = {};
  cudaMemPool_t pools[2] = {};
  void* memory[2] = {};
  cudaMemPoolProps properties{};
  for (int device = 0; device < 2; ++device) {
    ASSERT_EQ(cudaSetDevice(device), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&streams[device], cudaStreamNonBlocking), cudaSuccess);
    properties.location.id = device;
    ASSERT_EQ(cudaMemPoolCreate(&pools[device], &properties), cudaSuccess);
    ASSERT_EQ(cudaMallocFromPoolAsync(&memory[device], 64, pools[device], streams[device]), cudaSuccess);
  }
  unsigned char host[64] = {};
  EXPECT_EQ(enqueue(streams[1], [] {}), cudaSuccess);
  EXPECT_EQ(enqueue(streams[0], [] {}), cudaErrorInvalidResourceHandle) << "a launch on another device's stream";
  EXPECT_EQ(cudaMemcpyAsync(memory[0], host, 64, cudaMemcpyHostToDevice, streams[0]), cudaSuccess) << "a copy is not so strict";
  EXPECT_EQ(cudaMemcpyAsync(memory[1], host, 64, cudaMemcpyHostToDevice, streams[0]), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMallocFromPoolAsync(&memory[0], 64, pools[0], streams[1]), cudaErrorInvalidValue);
  EXPECT_EXIT(
      {
        (void)enqueue(streams[1], [&] { *static_cast<volatile char*>(memory[0]) = 1; });
        (void)cudaStreamSynchronize(streams[1]);
      },
      ::testing::KilledBySignal(SIGSEGV), "")
      << "a kernel that writes to another device";
  for (int device = 0; device < 2; ++device) {
    EXPECT_EQ(cudaFreeAsync(memory[device], streams[device]), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(streams[device]), cudaSuccess);
    EXPECT_EQ(cudaMemPoolDestroy(pools[device]), cudaSuccess);
  }
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 1);
}

}  // namespace
}  // namespace cuda_emulation
