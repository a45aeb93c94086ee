// Streams, and what kernels found wrong in device memory, which comes out where a stream is waited for.
#include <memory>

#include "device.h"

namespace choral_cuda {
namespace {

const char* text_of_fault(int32_t fault) {
  switch (fault) {
    case kRowBeyond: return "an id that is no row of its matrix (gather_rows, take_rows, moe_combine)";
    case kPositionBeyond: return "a position beyond the rotary table";
    case kSlotBeyond: return "a slot beyond the blocks of the key-value cache";
    case kBlockBeyond: return "a block table with rows or blocks that are not there (paged_attention)";
    case kAdapterBeyond: return "an adapter's slot, or rows of one, that are not there";
    case kSampledBeyond: return "a row to be sampled whose vocabulary, edits, mask or places are not there";
    default: return "something wrong in its arguments";
  }
}

choral_status* open_stream(choral_device* device, choral_stream* stream) {
  void* fault = nullptr;
  CUDA_TRY(device->allocate(sizeof(int32_t), &fault));
  stream->fault = static_cast<int32_t*>(fault);
  if (choral_status* failed =
          device->check(cudaEventCreateWithFlags(&stream->arrived, cudaEventDisableTiming), "stream_create")) {
    device->release(fault);
    return failed;
  }
  device->streams.push_back(stream);
  return nullptr;
}

}  // namespace

choral_status* stream_create(choral_device* device, choral_stream** result) {
  return without_exceptions("stream_create", [&]() -> choral_status* {
    CUDA_TRY(device->enter("stream_create"));
    cudaStream_t handle = nullptr;
    CUDA_TRY(device->check(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), "stream_create"));
    auto stream = std::make_unique<choral_stream>(handle);
    device->streams.reserve(device->streams.size() + 1);
    if (choral_status* failed = open_stream(device, stream.get())) {
      stream.reset();
      (void)cudaStreamDestroy(handle);
      return failed;
    }
    *result = stream.release();
    return nullptr;
  });
}

void stream_destroy(choral_device* device, choral_stream* stream) {
  if (stream == nullptr) return;
  (void)cudaSetDevice(device->ordinal);
  const cudaStream_t handle = stream->handle;
  (void)cudaStreamSynchronize(handle);
  device->release(stream->scratch);
  device->release(stream->fault);
  (void)cudaEventDestroy(stream->arrived);
  std::erase(device->streams, stream);
  delete stream;
  (void)cudaStreamDestroy(handle);
}

choral_status* stream_synchronize(choral_device* device, choral_stream* stream) {
  CUDA_TRY(device->enter("stream_synchronize"));
  device->end_list(stream);
  if (const auto late = stream->graphs.take_late_error(); late.op != nullptr) return device->check(late.error, late.op);
  void* copied = nullptr;
  CUDA_TRY(device->check(stream->staging.take(sizeof(int32_t), &copied), "stream_synchronize"));
  const size_t bytes = sizeof(int32_t);
  CUDA_TRY(
      device->check(cudaMemcpyAsync(copied, stream->fault, bytes, cudaMemcpyDeviceToHost, stream->handle), "stream_synchronize"));
  CUDA_TRY(device->check(cudaStreamSynchronize(stream->handle), "stream_synchronize"));
  const int32_t fault = *static_cast<const int32_t*>(copied);
  if (fault == kNoFault) [[likely]]
    return nullptr;
  CUDA_TRY(device->check(cudaMemsetAsync(stream->fault, 0, bytes, stream->handle), "stream_synchronize"));
  return error(CHORAL_INVALID_ARGUMENT, "an operator was given %s; its rows were left as they were", text_of_fault(fault));
}

}  // namespace choral_cuda
