// The functions of runtime_api.h.
#include "runtime.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "queue.h"
#include "rounding.h"

namespace cuda_emulation {

uint64_t Runtime::limit() const {
  const uint64_t asked = static_cast<uint64_t>(faults.memory_mib) << 20;
  return asked == 0 ? DeviceMemory::kReservedBytes : std::min(asked, DeviceMemory::kReservedBytes);
}

bool Runtime::is_pinned(const void* first, size_t bytes) const {
  const auto* at = static_cast<const unsigned char*>(first);
  auto block = pinned.upper_bound(at);
  if (block == pinned.begin()) return false;
  --block;
  return at + bytes <= block->first + block->second;
}

bool Runtime::is_device(const void* memory) const {
  return std::any_of(memories.begin(), memories.end(), [&](const auto& one) { return one.second.is_device(memory); });
}

void Runtime::run_all() {
  for (bool found = true; found;) {
    found = false;
    for (cudaStream_t stream : streams) {
      found = found || !stream->queue->waiting.empty();
      stream->queue->run();
    }
  }
}

bool Runtime::spoils_a_capture() {
  bool spoils = false;
  for (cudaStream_t stream : streams) {
    if (stream->capture == nullptr || !stream->capture->forbids(std::this_thread::get_id())) continue;
    stream->capture->spoiled = spoils = true;
  }
  return spoils;
}

void Runtime::break_with(const Faults& new_faults) {
  faults = new_faults;
  calls.clear();
  wgmma_rounds_otherwise = faults.wgmma == 0;
}

// Never destroyed: plug-ins outlive static objects.
Runtime& runtime() {
  static auto* one = new Runtime;
  return *one;
}

int& current_device() {
  static thread_local int device = 0;
  return device;
}

static thread_local cudaError_t last_error = cudaSuccess;

cudaError_t note(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

namespace {

// What the queued work of a copy or a kernel runs in. After a failure it passes over.
// It touches the memory of its own device alone.
void guarded(int device, const std::function<void()>& work) {
  Runtime& r = runtime();
  if (r.broken != cudaSuccess) return;
  const DeviceMemory::Window window(r.memories[device]);
  work();
}

void copy_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows) {
  for (size_t row = 0; row < rows; ++row) {
    std::memcpy(static_cast<unsigned char*>(to) + row * to_pitch, static_cast<const unsigned char*>(from) + row * from_pitch,
                width);
  }
}

size_t span_bytes(size_t pitch, size_t width, size_t rows) { return rows == 0 ? 0 : (rows - 1) * pitch + width; }

cudaError_t queue_copy(Runtime& r, void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows,
                       cudaMemcpyKind kind, cudaStream_t stream) {
  const size_t to_bytes = span_bytes(to_pitch, width, rows), from_bytes = span_bytes(from_pitch, width, rows);
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  if (stream == nullptr || (rows > 1 && (to_pitch < width || from_pitch < width))) return cudaErrorInvalidValue;
  const DeviceMemory& memory = r.memories[stream->device];
  if (to_device ? !memory.holds(to, to_bytes) : r.is_device(to)) return cudaErrorInvalidValue;
  if (from_device ? !memory.holds(from, from_bytes) : r.is_device(from)) return cudaErrorInvalidValue;
  const auto run = [=, device = stream->device](const void* source, size_t pitch) {
    guarded(device, [=] { copy_rows(to, to_pitch, source, pitch, width, rows); });
  };
  const bool from_pageable = !from_device && !r.is_pinned(from, from_bytes),
             to_pageable = !to_device && !r.is_pinned(to, to_bytes);
  if (stream->capture != nullptr && (from_pageable || to_pageable)) {
    stream->capture->spoiled = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  if (from_pageable) {  // read before the call returns
    auto copied = std::make_shared<std::vector<unsigned char>>(width * rows);
    copy_rows(copied->data(), width, from, from_pitch, width, rows);
    return stream->push([run, copied, width] { run(copied->data(), width); });
  }
  if (const cudaError_t error = stream->push([=] { run(from, from_pitch); }); error != cudaSuccess) return error;
  if (to_pageable) {  // written before it returns
    stream->queue->run();
    return r.broken;
  }
  return cudaSuccess;
}

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};
constexpr ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorIllegalState, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
};

const ErrorText& text_of(cudaError_t error) {
  static constexpr ErrorText kUnknown{cudaErrorUnknown, "cudaErrorUnknown", "unknown error"};
  const auto* found = std::find_if(std::begin(kErrors), std::end(kErrors), [&](const ErrorText& e) { return e.error == error; });
  return found == std::end(kErrors) ? kUnknown : *found;
}

}  // namespace

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work) {
  return call("enqueue", InCapture::kFine, [&](Runtime&) {
    if (stream == nullptr) return cudaErrorInvalidValue;
    if (stream->device != current_device()) return cudaErrorInvalidResourceHandle;
    return stream->push([device = stream->device, work = std::move(work)] {
      Runtime& r = runtime();
      if (r.broken == cudaSuccess && r.fails_now("launch")) r.broken = static_cast<cudaError_t>(r.faults.with);
      guarded(device, work);
    });
  });
}

}  // namespace cuda_emulation

using cuda_emulation::call;
using cuda_emulation::current_device;
using cuda_emulation::DeviceMemory;
using cuda_emulation::Faults;
using cuda_emulation::InCapture;
using cuda_emulation::Runtime;
using cuda_emulation::runtime;

cudaError_t cudaDriverGetVersion(int* version) {
  const std::lock_guard held(runtime().lock);
  runtime().break_with(Faults::from_environment());
  *version = runtime().faults.driver;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = cuda_emulation::kRuntimeVersion;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  {
    const std::lock_guard held(runtime().lock);
    runtime().break_with(Faults::from_environment());
    runtime().broken = cudaSuccess;
  }
  return call("cudaGetDeviceCount", [&](Runtime& r) { return *count = r.faults.devices, cudaSuccess; });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return call("cudaGetDeviceProperties", InCapture::kFine, [&](Runtime& r) {
    if (!r.has_device(device)) return cudaErrorInvalidDevice;
    std::snprintf(properties->name, sizeof properties->name, "emulated CUDA device");
    properties->totalGlobalMem = r.limit();
    return cudaSuccess;
  });
}

// What a block may ask for on cards of a compute capability (CUDA's programming guide).
static int block_shared_kib(int capability) {
  switch (capability) {
    case 86:
    case 89:
    case 120: return 99;
    case 80:
    case 87: return 163;
    default: return 227;
  }
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return call("cudaDeviceGetAttribute", InCapture::kFine, [&](Runtime& r) {
    if (!r.has_device(device)) return cudaErrorInvalidDevice;
    switch (attribute) {
      case cudaDevAttrMultiProcessorCount: *value = 4; return cudaSuccess;
      case cudaDevAttrL2CacheSize: *value = 4 << 10; return cudaSuccess;
      case cudaDevAttrComputeCapabilityMajor: *value = r.faults.capability / 10; return cudaSuccess;
      case cudaDevAttrComputeCapabilityMinor: *value = r.faults.capability % 10; return cudaSuccess;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = block_shared_kib(r.faults.capability) << 10; return cudaSuccess;
      case cudaDevAttrMemoryPoolsSupported: *value = r.faults.pools; return cudaSuccess;
    }
    return cudaErrorInvalidValue;
  });
}

cudaError_t cudaSetDevice(int device) {
  return call("cudaSetDevice", InCapture::kFine, [&](Runtime& r) {
    if (!r.has_device(device)) return cudaErrorInvalidDevice;
    current_device() = device;
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return call("cudaMemGetInfo", InCapture::kFine, [&](Runtime& r) {
    *total = r.limit();
    *free = *total - std::min<size_t>(*total, r.memories[current_device()].used());
    return cudaSuccess;
  });
}

cudaError_t cudaGetLastError(void) { return std::exchange(cuda_emulation::last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError(void) { return cuda_emulation::last_error; }
const char* cudaGetErrorName(cudaError_t error) { return cuda_emulation::text_of(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return cuda_emulation::text_of(error).text; }

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  return call("cudaMemPoolCreate", [&](Runtime& r) {
    if (!r.has_device(properties->location.id)) return cudaErrorInvalidDevice;
    ++r.pools;
    *pool = new CUmemPoolHandle_st{.device = properties->location.id};
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  const std::lock_guard held(runtime().lock);
  if (pool->live != 0) {
    std::fprintf(stderr, "emulated CUDA: a pool ends with %d allocations that nobody gave back\n", pool->live);
    std::abort();
  }
  if (--runtime().pools == 0 && runtime().graphs != 0) {
    std::fprintf(stderr, "emulated CUDA: the last pool ends before %d graphs\n", runtime().graphs);
    std::abort();
  }
  delete pool;
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
  return call("cudaMemPoolSetAttribute", [](Runtime&) { return cudaSuccess; });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return call("cudaMemPoolGetAttribute", InCapture::kFine, [&](Runtime& r) {  // nothing is kept that is not used
    const DeviceMemory& memory = r.memories[pool->device];
    const uint64_t bytes = attribute == cudaMemPoolAttrUsedMemHigh ? memory.most_used() : memory.used();
    std::memcpy(value, &bytes, sizeof bytes);
    return cudaSuccess;
  });
}

cudaError_t cudaMallocFromPoolAsync(void** memory, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  return call("cudaMallocFromPoolAsync", [&](Runtime& r) {
    if (stream->device != pool->device) return cudaErrorInvalidValue;
    DeviceMemory& device = r.memories[pool->device];
    void* taken = device.take(bytes, r.limit());
    if (taken == nullptr) {
      stream->queue->run();  // what is freed before it on its stream
      taken = device.take(bytes, r.limit());
    }
    if (taken == nullptr) return cudaErrorMemoryAllocation;
    r.pool_of[taken] = pool;
    ++pool->live;
    *memory = taken;
    return cudaSuccess;
  });
}

cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  Runtime& r = runtime();  // of a broken device too: these addresses are the process's
  const std::lock_guard held(r.lock);
  const auto owner = r.pool_of.find(memory);
  if (owner == r.pool_of.end()) return cudaErrorInvalidValue;
  --owner->second->live;
  stream->queue->push([memory, device = owner->second->device] { runtime().memories[device].give(memory); });
  r.pool_of.erase(owner);
  return r.broken;
}

cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  return call("cudaHostAlloc", [&](Runtime& r) {
    *memory = std::malloc(bytes);
    if (*memory == nullptr) return cudaErrorMemoryAllocation;
    r.pinned[static_cast<unsigned char*>(*memory)] = bytes;
    return cudaSuccess;
  });
}

cudaError_t cudaFreeHost(void* memory) {
  const std::lock_guard held(runtime().lock);
  runtime().run_all();
  runtime().pinned.erase(static_cast<unsigned char*>(memory));
  std::free(memory);
  return runtime().broken;
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  return call("cudaMemsetAsync", InCapture::kFine, [&](Runtime& r) {
    if (!r.memories[stream->device].holds(memory, bytes)) return cudaErrorInvalidValue;
    return stream->push([=, device = stream->device] {
      cuda_emulation::guarded(device, [=] {
        if (value == 0) return runtime().memories[device].zero(memory, bytes);
        std::memset(memory, value, bytes);
      });
    });
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return call("cudaMemcpyAsync", InCapture::kFine,
              [&](Runtime& r) { return cuda_emulation::queue_copy(r, to, bytes, from, bytes, bytes, 1, kind, stream); });
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  return call("cudaMemcpy2DAsync", InCapture::kFine, [&](Runtime& r) {
    return cuda_emulation::queue_copy(r, to, to_pitch, from, from_pitch, width, rows, kind, stream);
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return call("cudaStreamCreateWithFlags", [&](Runtime& r) {
    *stream = new CUstream_st{.device = current_device()};
    r.streams.insert(*stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard held(runtime().lock);
  stream->queue->run();
  runtime().streams.erase(stream);
  delete stream;
  return runtime().broken;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call("cudaStreamSynchronize", [&](Runtime& r) {
    stream->queue->run();
    return r.broken;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return call("cudaStreamWaitEvent", [&](Runtime&) {
    if (event->queue == nullptr) return cudaSuccess;
    stream->queue->push([queue = event->queue, number = event->number] { queue->run_to(number); });
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call("cudaEventCreateWithFlags", [&](Runtime&) {
    *event = new CUevent_st{.device = current_device()};
    if ((flags & cudaEventDisableTiming) == 0) (*event)->passed = std::make_shared<double>(0);
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call("cudaEventRecord", [&](Runtime&) {
    if (stream->device != event->device) return cudaErrorInvalidResourceHandle;
    if (event->passed != nullptr) {
      stream->queue->push([passed = event->passed] {
        *passed = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
      });
    }
    event->queue = stream->queue;
    event->number = stream->queue->queued;
    return cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call("cudaEventSynchronize", [&](Runtime& r) {
    if (event->queue != nullptr) event->queue->run_to(event->number);
    return r.broken;
  });
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  return call("cudaEventElapsedTime", [&](Runtime& r) {
    for (const cudaEvent_t event : {begin, end}) {
      if (event->passed == nullptr || event->queue == nullptr) return cudaErrorInvalidResourceHandle;
      if (event->queue->begun < event->number) return cudaErrorNotReady;
    }
    *ms = static_cast<float>((*end->passed - *begin->passed) * 1e3);
    return r.broken;
  });
}
