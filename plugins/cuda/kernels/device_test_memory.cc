// The kernels' tests on a GPU: pinned memory of the host, which kernels read and write where it lies, and a wait behind each
// launch. Without a GPU they are skipped.
#include <cstdio>
#include <cstdlib>

#include "kernel_testing.h"

namespace choral_cuda {

// Tests that have parameters ask for memory before the first of them runs.
void* allocate_shared(size_t bytes) {
  int devices = 0;
  const cudaError_t found = cudaGetDeviceCount(&devices);
  if (found != cudaSuccess || devices == 0) {
    std::fprintf(stderr, "no GPU: %s\n", cudaGetErrorString(found));
    std::_Exit(77);
  }
  void* memory = nullptr;
  const cudaError_t error = cudaMallocHost(&memory, bytes == 0 ? 1 : bytes);
  if (error != cudaSuccess) {
    std::fprintf(stderr, "pinned memory: %s\n", cudaGetErrorString(error));
    std::abort();
  }
  return memory;
}

void release_shared(void* memory) { cudaFreeHost(memory); }
int64_t launches_so_far() { return -1; }

bool device_has_wgmma() {
  int major = 0, minor = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
  return major == 9 && minor == 0;
}

cudaError_t done(cudaError_t launched) { return launched != cudaSuccess ? launched : cudaDeviceSynchronize(); }

}  // namespace choral_cuda
