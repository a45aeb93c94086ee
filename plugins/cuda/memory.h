// The device's memory, out of a pool of this device's own. Taking and giving back are queued on a stream of the pool's, so that
// neither stops the streams that compute. One thread at a time.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace choral_cuda {

class Memory {
 public:
  // Of the thread's current device.
  cudaError_t open(int ordinal);
  // Everything was given back.
  void close();

  // Zero-filled, for any stream from now on.
  cudaError_t take(uint64_t size_bytes, void** memory);
  // What is given back from now on is taken again only once `user` has done what is queued on it now.
  void wait_for(cudaStream_t user);
  void give(void* memory);

  // What can still be taken.
  cudaError_t free_bytes(uint64_t* free, uint64_t* total) const;
  // What is taken now, and the most that was at a time.
  cudaError_t used_bytes(uint64_t* used) const;
  cudaError_t most_bytes(uint64_t* most) const;

 private:
  cudaMemPool_t pool_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t used_ = nullptr;
};

}  // namespace choral_cuda
