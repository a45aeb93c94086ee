#include "device.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "structs.h"

using choral_cuda::error;

choral_status* choral_device::check(cudaError_t result, const char* doing) {
  if (result == cudaSuccess) [[likely]]
    return nullptr;
  (void)cudaGetLastError();  // it is told here, once
  const std::string text = choral_cuda::text_of(result);
  if (choral_cuda::is_lasting(result)) {
    int none = cudaSuccess;
    broken.compare_exchange_strong(none, result);
    return error(
        CHORAL_UNAVAILABLE,
        "%s: %s. The device takes no more work of this process and its memory is lost: start again; if it happens again, "
        "`compute-sanitizer choral ...` names the kernel, and the kernel log (dmesg, Xid) says whether it is the hardware",
        doing, text.c_str());
  }
  if (result == cudaErrorMemoryAllocation) return error(CHORAL_RESOURCE_EXHAUSTED, "%s: %s", doing, text.c_str());
  return error(CHORAL_INTERNAL, "%s: %s", doing, text.c_str());
}

choral_status* choral_device::enter(const char* doing) {
  const auto before = static_cast<cudaError_t>(broken.load(std::memory_order_relaxed));
  return check(before != cudaSuccess ? before : cudaSetDevice(ordinal), doing);
}

choral_status* choral_device::allocate(uint64_t size_bytes, void** result) {
  const cudaError_t taken = memory.take(size_bytes, result);
  if (taken != cudaErrorMemoryAllocation) return check(taken, "allocate");
  (void)cudaGetLastError();
  uint64_t free = 0, total = 0;
  CUDA_TRY(check(memory.free_bytes(&free, &total), "allocate"));
  return error(
      CHORAL_RESOURCE_EXHAUSTED,
      "no room for %s: %s of the device's %s are free; a smaller --kv-cache-memory, fewer --max-num-seqs, a more quantised "
      "model, or no other program on the device make room",
      choral_cuda::size_text(size_bytes).c_str(), choral_cuda::size_text(free).c_str(), choral_cuda::size_text(total).c_str());
}

void choral_device::release(void* given) {
  if (given == nullptr) return;
  (void)cudaSetDevice(ordinal);
  for (choral_stream* stream : streams) {
    end_list(stream);
    memory.wait_for(stream->handle);
  }
  memory.wait_for(reads);
  memory.give(given);
}

choral_status* choral_device::reserve_scratch(choral_stream* stream, size_t size_bytes) {
  if (size_bytes <= stream->scratch_bytes) [[likely]]
    return nullptr;
  const size_t wanted = std::max(size_bytes, 2 * stream->scratch_bytes);
  void* larger = nullptr;
  CUDA_TRY(allocate(wanted, &larger));
  end_list(stream);
  stream->graphs.forget();
  release(stream->scratch);
  stream->scratch = larger;
  stream->scratch_bytes = wanted;
  return nullptr;
}

choral_cuda::Launch choral_device::launch_on(const choral_stream* stream) const {
  return {
      stream->handle, sm_count, stream->scratch, stream->scratch_bytes, stream->fault, static_cast<size_t>(block_shared_bytes),
      has_wgmma,      overlaps};
}

void choral_device::end_list(choral_stream* stream) { stream->graphs.end_list(launch_on(stream)); }

namespace choral_cuda {
namespace {

choral_status* open(choral_device* device) {
  CUDA_TRY(device->check(cudaSetDevice(device->ordinal), "open_device: choose the device"));
  CUDA_TRY(device->check(device->memory.open(device->ordinal), "open_device: a pool of memory"));
  CUDA_TRY(device->check(cudaStreamCreateWithFlags(&device->reads, cudaStreamNonBlocking), "open_device: a stream"));
  return device->check(cudaEventCreateWithFlags(&device->packed, cudaEventDisableTiming), "open_device: an event");
}

choral_status* read_environment(choral_device* device) {
  const char* graphs = std::getenv("CHORAL_CUDA_GRAPHS");
  const std::string_view wish = graphs == nullptr ? "" : graphs;
  if (!wish.empty() && wish != "0" && wish != "1") {
    return error(CHORAL_INVALID_ARGUMENT,
                 "CHORAL_CUDA_GRAPHS is '%.64s': 0 launches each operator by itself, 1 (as without it) uses CUDA graphs", graphs);
  }
  device->uses_graphs = wish != "0";
  return nullptr;
}

}  // namespace

choral_status* open_device(const choral_device_config* given, choral_device** result) {
  return without_exceptions("open_device", [&]() -> choral_status* {
    const auto config = read<choral_device_config>(given);
    DeviceFacts facts;
    if (const std::string why_not = examine(config.index, &facts); !why_not.empty()) {
      return error(CHORAL_UNAVAILABLE, "%s", why_not.c_str());
    }
    auto device = std::make_unique<choral_device>();
    device->ordinal = config.index;
    device->sm_count = facts.sm_count;
    device->block_shared_bytes = facts.block_shared_bytes;
    device->is_sm_90 = facts.major == 9 && facts.minor == 0;
    device->overlaps = facts.major >= 9;
    device->pool = config.pool;
    CUDA_TRY(read_environment(device.get()));
    if (choral_status* failed = open(device.get())) {
      close_device(device.release());
      return failed;
    }
    *result = device.release();
    return nullptr;
  });
}

void close_device(choral_device* device) {
  if (device == nullptr) return;
  (void)cudaSetDevice(device->ordinal);
  while (!device->streams.empty()) stream_destroy(device, device->streams.back());
  if (device->record != nullptr) (void)cudaFreeHost(device->record);
  if (device->packed != nullptr) (void)cudaEventDestroy(device->packed);
  device->memory.close();
  if (device->reads != nullptr) (void)cudaStreamDestroy(device->reads);
  delete device;
}

}  // namespace choral_cuda
