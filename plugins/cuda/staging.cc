#include "staging.h"

namespace choral_cuda {

namespace {
constexpr size_t kAlignment = 256;
}

Staging::~Staging() {
  for (Chunk& chunk : chunks_) {
    if (chunk.passed != nullptr) (void)cudaEventDestroy(chunk.passed);
    if (chunk.memory != nullptr) (void)cudaFreeHost(chunk.memory);
  }
}

cudaError_t Staging::take(size_t size_bytes, void** memory) {
  cudaError_t error = cudaSuccess;
  if (chunks_[current_].memory == nullptr || size_bytes > kChunkBytes - taken_bytes_) error = next_chunk();
  if (error != cudaSuccess) return error;
  *memory = chunks_[current_].memory + taken_bytes_;
  taken_bytes_ += (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (taken_bytes_ > kChunkBytes) taken_bytes_ = kChunkBytes;
  return cudaSuccess;
}

cudaError_t Staging::next_chunk() {
  cudaError_t error = cudaSuccess;
  Chunk& full = chunks_[current_];
  if (full.memory != nullptr) {
    error = cudaEventRecord(full.passed, stream_);
    if (error != cudaSuccess) return error;
    full.recorded = true;
    current_ = (current_ + 1) % kChunks;
  }
  Chunk& next = chunks_[current_];
  if (next.memory == nullptr) {
    void* memory = nullptr;
    if (next.passed == nullptr) error = cudaEventCreateWithFlags(&next.passed, cudaEventDisableTiming);
    if (error == cudaSuccess) error = cudaHostAlloc(&memory, kChunkBytes, cudaHostAllocDefault);
    if (error != cudaSuccess) return error;
    next.memory = static_cast<char*>(memory);
  }
  if (next.recorded) error = cudaEventSynchronize(next.passed);
  taken_bytes_ = 0;
  return error;
}

}  // namespace choral_cuda
