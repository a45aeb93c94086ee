// How a kernel is launched and how its code gets at shared memory, on a device and in emulation alike: `launch_kernel(kernel,
// shape, launch, args…)`. Arguments are copied at the launch.
//
// Devices from 9.0 on start a kernel while the one before it still runs, so every kernel calls wait_for_earlier_kernels() before
// it reads what another one wrote, and before it writes anything but a fault.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels.h"

#ifdef CHORAL_CUDA_EMULATION
#include <functional>

#include "../emulation/queue.h"
#endif

namespace choral_cuda {

struct GridShape {
  dim3 blocks;
  dim3 threads;
  size_t shared_bytes = 0;
};

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;
inline constexpr int64_t kMostBlocksY = 65535;

template <class T>
__host__ __device__ constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}
template <class T>
__host__ __device__ constexpr T round_up(T a, T b) {
  return ceil_div(a, b) * b;
}

#ifdef CHORAL_CUDA_EMULATION

template <class... Parameters, class... Args>
cudaError_t launch_kernel(void (*kernel)(Parameters...), const GridShape& shape, const Launch& launch, Args... args) {
  if (shape.shared_bytes > launch.block_shared_bytes) return cudaErrorInvalidValue;
  return cuda_emulation::enqueue(launch.stream, [=] {
    cuda_emulation::run_grid(shape.blocks, shape.threads, shape.shared_bytes, [=] {
      kernel(args...);
      cuda_emulation::expect_waited();
    });
  });
}

inline void wait_for_earlier_kernels() { cuda_emulation::wait_for_earlier_kernels(); }

template <class T>
T* shared_memory() {
  return reinterpret_cast<T*>(cuda_emulation::current_block->shared);
}

#else

// What a block may have without asking.
inline constexpr size_t kSharedWithoutAsking = 48 << 10;

template <class... Parameters, class... Args>
cudaError_t launch_kernel(void (*kernel)(Parameters...), const GridShape& shape, const Launch& launch, Args... args) {
  if (shape.shared_bytes > kSharedWithoutAsking) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes));
    if (error != cudaSuccess) return error;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = shape.blocks;
  config.blockDim = shape.threads;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = launch.stream;
  cudaLaunchAttribute overlaps{};
  overlaps.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlaps.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &overlaps;
  config.numAttrs = launch.overlaps ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...);
}

// And lets those behind it start, as soon as there is room beside it.
__device__ __forceinline__ void wait_for_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

template <class T>
__device__ __forceinline__ T* shared_memory() {
  extern __shared__ __align__(128) unsigned char all_shared_memory[];
  return reinterpret_cast<T*>(all_shared_memory);
}

#endif

}  // namespace choral_cuda
