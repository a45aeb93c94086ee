// Pinned host memory through which a stream's copies pass, so that they need not wait for the device: a ring of chunks, each free
// again when the stream has passed the copies that were queued from it. One thread at a time.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace choral_cuda {

class Staging {
 public:
  static constexpr size_t kChunkBytes = size_t{4} << 20;
  static constexpr int kChunks = 3;

  explicit Staging(cudaStream_t stream) : stream_(stream) {}
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Up to kChunkBytes of it. Queue the copy that uses it before the next call. What a copy from the device wrote is there until
  // kChunks - 1 further chunks were taken.
  cudaError_t take(size_t size_bytes, void** memory);

 private:
  struct Chunk {
    char* memory = nullptr;
    cudaEvent_t passed = nullptr;
    bool recorded = false;
  };
  cudaError_t next_chunk();

  cudaStream_t stream_;
  Chunk chunks_[kChunks];
  int current_ = 0;
  size_t taken_bytes_ = 0;  // of the current chunk
};

}  // namespace choral_cuda
