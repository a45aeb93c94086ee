// The kernels' tests on a GPU: managed memory, and a wait behind each launch. Without a GPU they are skipped.
#include "kernel_testing.h"

namespace choral_cuda {
namespace {

class NeedsDevice : public ::testing::Environment {
  void SetUp() override {
    int devices = 0;
    const cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU: " << cudaGetErrorString(error);
  }
};

const auto* const needs_device = ::testing::AddGlobalTestEnvironment(new NeedsDevice);

}  // namespace

void* allocate_shared(size_t bytes) {
  void* memory = nullptr;
  const cudaError_t error = cudaMallocManaged(&memory, bytes == 0 ? 1 : bytes);
  if (error != cudaSuccess) {
    std::fprintf(stderr, "managed memory: %s\n", cudaGetErrorString(error));
    std::abort();
  }
  return memory;
}

void release_shared(void* memory) { cudaFree(memory); }

cudaError_t done(cudaError_t launched) { return launched != cudaSuccess ? launched : cudaDeviceSynchronize(); }

}  // namespace choral_cuda
