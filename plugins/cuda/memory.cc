#include "memory.h"

namespace choral_cuda {

cudaError_t Memory::open(int ordinal) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = ordinal;
  cudaError_t error = cudaMemPoolCreate(&pool_, &properties);
  // What was given back stays the pool's: a server takes it again.
  uint64_t keep = UINT64_MAX;
  if (error == cudaSuccess) error = cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep);
  if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
  if (error == cudaSuccess) error = cudaEventCreateWithFlags(&used_, cudaEventDisableTiming);
  return error;
}

void Memory::close() {
  if (used_ != nullptr) (void)cudaEventDestroy(used_);
  if (stream_ != nullptr) {
    (void)cudaStreamSynchronize(stream_);
    (void)cudaStreamDestroy(stream_);
  }
  if (pool_ != nullptr) (void)cudaMemPoolDestroy(pool_);
  *this = {};
}

cudaError_t Memory::take(uint64_t size_bytes, void** memory) {
  const uint64_t bytes = size_bytes == 0 ? 1 : size_bytes;
  void* taken = nullptr;
  cudaError_t error = cudaMallocFromPoolAsync(&taken, bytes, pool_, stream_);
  if (error != cudaSuccess) return error;
  error = cudaMemsetAsync(taken, 0, bytes, stream_);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream_);
  if (error != cudaSuccess) {
    (void)cudaFreeAsync(taken, stream_);
    return error;
  }
  *memory = taken;
  return cudaSuccess;
}

void Memory::wait_for(cudaStream_t user) {
  if (cudaEventRecord(used_, user) == cudaSuccess) (void)cudaStreamWaitEvent(stream_, used_, 0);
}

void Memory::give(void* memory) {
  if (memory != nullptr) (void)cudaFreeAsync(memory, stream_);
}

cudaError_t Memory::free_bytes(uint64_t* free, uint64_t* total) const {
  size_t outside = 0, all = 0;
  uint64_t reserved = 0, used = 0;
  cudaError_t error = cudaMemGetInfo(&outside, &all);
  if (error == cudaSuccess) error = cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &reserved);
  if (error == cudaSuccess) error = used_bytes(&used);
  if (error != cudaSuccess) return error;
  *free = outside + (reserved > used ? reserved - used : 0);
  *total = all;
  return cudaSuccess;
}

cudaError_t Memory::used_bytes(uint64_t* used) const {
  return cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrUsedMemCurrent, used);
}
cudaError_t Memory::most_bytes(uint64_t* most) const { return cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrUsedMemHigh, most); }

}  // namespace choral_cuda
