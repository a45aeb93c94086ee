// An open device: its memory, its streams, and what has become of it. The parts of the plug-in's table that work on one stand
// below by the file that has them. One thread at a time, as the header says, but for read_row, which has a stream and a lock of
// its own, and for the thread that copies beside: of the device it reads what never changes and `broken`, all else is its
// stream's own. The others touch that stream by events alone, when they give memory back.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "choral/plugin.h"
#include "error.h"
#include "graphs.h"
#include "kernels/kernels.h"
#include "memory.h"
#include "staging.h"

struct choral_stream {
  cudaStream_t handle;
  choral_cuda::Staging staging;
  void* scratch = nullptr;  // of kernels
  size_t scratch_bytes = 0;
  int32_t* fault = nullptr;  // what kernels found wrong, on the device
  cudaEvent_t arrived = nullptr;
  choral_cuda::StepGraphs graphs;

  explicit choral_stream(cudaStream_t given) : handle(given), staging(given) {}
};

struct choral_device {
  int ordinal = 0;
  int sm_count = 0;
  int block_shared_bytes = 0;
  bool uses_graphs = true;
  bool is_sm_90 = false;
  bool wide_products_chosen = false;
  bool has_wgmma = false;  // and uses it (wide_products.h)
  bool overlaps = false;   // kernels are started while the one before runs (kernels/launch.h)
  choral_pool* pool = nullptr;
  choral_cuda::Memory memory;
  std::vector<choral_stream*> streams;
  std::vector<choral_cuda::GroupedProduct> grouped;  // of the call that is made

  std::mutex reading;  // of what follows
  cudaStream_t reads = nullptr;
  cudaEvent_t packed = nullptr;  // the last upload of a weight
  void* record = nullptr;        // of a weight, pinned: what was read last
  size_t record_bytes = 0;
  const choral_packed* record_of = nullptr;
  int64_t record_index = 0;

  std::atomic<int> broken{cudaSuccess};  // the first lasting error

  // Null, or the error as a status: what was asked for, and what to do. After a lasting error every call of this device ends
  // here.
  choral_status* check(cudaError_t error, const char* doing);
  // The calling thread's CUDA calls are this device's from here on; an error when it is broken.
  choral_status* enter(const char* doing);
  choral_status* allocate(uint64_t size_bytes, void** memory);
  void release(void* memory);
  // Scratch of kernels on this stream, of so many bytes at least.
  choral_status* reserve_scratch(choral_stream* stream, size_t size_bytes);
  choral_cuda::Launch launch_on(const choral_stream* stream) const;
  // What was called on the stream is launched: before anything else is queued there.
  void end_list(choral_stream* stream);
};

namespace choral_cuda {

// probe.cc
choral_status* probe(choral_probe* answer);
// The reason why device `ordinal` is not used, and what is known of it; empty: it is.
struct DeviceFacts {
  int major = 0, minor = 0, sm_count = 0, block_shared_bytes = 0;
  uint64_t memory_bytes = 0;
  std::string name;
};
std::string examine(int ordinal, DeviceFacts* facts);

// device.cc
choral_status* open_device(const choral_device_config* config, choral_device** device);
void close_device(choral_device* device);

// streams.cc
choral_status* stream_create(choral_device* device, choral_stream** stream);
void stream_destroy(choral_device* device, choral_stream* stream);
choral_status* stream_synchronize(choral_device* device, choral_stream* stream);

// copies.cc
choral_status* copy(choral_device* device, choral_stream* stream, const choral_copy* what);

// weights.cc
choral_status* prepack(choral_device* device, choral_stream* stream, const choral_weight* weight, choral_packed** packed,
                       choral_packed_facts* facts);
void release_packed(choral_device* device, choral_packed* packed);
choral_status* read_row(choral_device* device, const choral_packed* packed, int64_t row, float* out);

// peaks.cc
choral_status* measure_peaks(choral_device* device, choral_stream* stream, choral_peaks* result);

// config.cc
choral_status* check_and_update_config(choral_config* config);
choral_status* supports_op(choral_device* device, const choral_op_query* query, choral_support* answer);

}  // namespace choral_cuda

struct choral_packed {
  choral_cuda::PackPlan plan;
  choral_cuda::PackedWeight weight;  // as kernels get it
  void* image;                       // on the device
};
