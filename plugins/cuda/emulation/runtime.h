// What the functions of runtime_api.h share: the state of the emulated CUDA, and the frame of a call.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "device_memory.h"
#include "faults.h"
#include "runtime_api.h"
#include "streams.h"

namespace cuda_emulation {

inline constexpr int kRuntimeVersion = 13000;

struct Runtime {
  std::recursive_mutex lock;
  Faults faults = Faults::from_environment();
  std::map<std::string, int64_t> calls;
  cudaError_t broken = cudaSuccess;      // once a kernel has failed nothing works any more
  std::map<int, DeviceMemory> memories;  // by device
  std::map<void*, cudaMemPool_t> pool_of;
  std::map<const unsigned char*, size_t> pinned;
  std::set<cudaStream_t> streams;
  int pools = 0, graphs = 0;  // that live

  void break_with(const Faults& new_faults);
  uint64_t limit() const;
  bool fails_now(const char* name) { return faults.fail == name && ++calls[name] == faults.at; }
  bool has_device(int device) const { return device >= 0 && device < faults.devices; }
  bool is_device(const void* memory) const;  // of any
  bool is_pinned(const void* first, size_t bytes) const;
  void run_all();
  // Whether a capture forbids this thread calls that are not captured; such a call spoils it.
  bool spoils_a_capture();
};

Runtime& runtime();
// The thread's, as cudaSetDevice() has it.
int& current_device();
// Keeps it as the thread's last error.
cudaError_t note(cudaError_t error);

// What becomes of a call while this thread captures a stream: it spoils that, or is fine.
enum class InCapture { kForbidden, kFine };

// A call of the API: under the lock, and not if the device is broken or this call is to fail.
template <class Body>
cudaError_t call(const char* name, InCapture in_capture, Body&& body) {
  Runtime& r = runtime();
  const std::lock_guard held(r.lock);
  if (r.broken != cudaSuccess) return note(r.broken);
  if (r.faults.driver == 0 || r.faults.driver / 1000 < kRuntimeVersion / 1000) return note(cudaErrorInsufficientDriver);
  if (r.faults.devices == 0) return note(cudaErrorNoDevice);
  if (r.fails_now(name)) return note(static_cast<cudaError_t>(r.faults.with));
  if (in_capture == InCapture::kForbidden && r.spoils_a_capture()) return note(cudaErrorStreamCaptureUnsupported);
  return note(body(r));
}
template <class Body>
cudaError_t call(const char* name, Body&& body) {
  return call(name, InCapture::kForbidden, std::forward<Body>(body));
}

}  // namespace cuda_emulation
