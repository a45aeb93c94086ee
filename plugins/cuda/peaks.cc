// What the device gives at most, timed by events: the fastest of several runs, the first of which warms up and is not counted.
#include "kernels/peaks.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "device.h"
#include "structs.h"
#include "wide_products.h"

namespace choral_cuda {
namespace {

constexpr int kRuns = 10;
constexpr int kCachesRead = 32;       // a thirty-second of what is read may lie in L2 from the run before
constexpr float kLongEnoughMs = 2;    // of arithmetic: beside it a launch is nothing, and clocks have risen
constexpr int kMostRounds = 1 << 20;  // sums of int32 stay in range
constexpr size_t kSinkBytes = 256;

class Stopwatch {
 public:
  explicit Stopwatch(choral_device* device) : device_(device) {}
  ~Stopwatch() {
    for (cudaEvent_t event : {begin_, end_}) {
      if (event != nullptr) (void)cudaEventDestroy(event);
    }
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  choral_status* open() {
    CUDA_TRY(check(cudaEventCreateWithFlags(&begin_, cudaEventDefault)));
    return check(cudaEventCreateWithFlags(&end_, cudaEventDefault));
  }
  template <class Queue>
  choral_status* time(cudaStream_t stream, Queue queue, float* ms) {
    CUDA_TRY(check(cudaEventRecord(begin_, stream)));
    CUDA_TRY(check(queue()));
    CUDA_TRY(check(cudaEventRecord(end_, stream)));
    CUDA_TRY(check(cudaEventSynchronize(end_)));
    CUDA_TRY(check(cudaEventElapsedTime(ms, begin_, end_)));
    return *ms > 0 ? nullptr : error(CHORAL_INTERNAL, "measure_peaks: the device's clock stands still");
  }
  template <class Queue>
  choral_status* fastest(cudaStream_t stream, Queue queue, double* seconds) {
    float best = std::numeric_limits<float>::max();
    for (int run = 0; run <= kRuns; ++run) {
      float ms = 0;
      CUDA_TRY(time(stream, queue, &ms));
      if (run > 0) best = std::min(best, ms);
    }
    *seconds = 1e-3 * best;
    return nullptr;
  }

 private:
  choral_status* check(cudaError_t result) { return device_->check(result, "measure_peaks"); }

  choral_device* device_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

choral_status* measure_memory(Stopwatch& watch, const Launch& launch, unsigned char* memory, size_t bytes, choral_peaks* peaks) {
  double seconds = 0;
  CUDA_TRY(watch.fastest(
      launch.stream, [&] { return read_memory(launch, memory, bytes, memory + bytes); }, &seconds));
  peaks->read_bytes_per_s = static_cast<double>(bytes) / seconds;
  const auto copy_half = [&] {
    return cudaMemcpyAsync(memory, memory + bytes / 2, bytes / 2, cudaMemcpyDeviceToDevice, launch.stream);
  };
  CUDA_TRY(watch.fastest(launch.stream, copy_half, &seconds));
  peaks->copy_bytes_per_s = static_cast<double>(bytes) / seconds;  // half of them read, half written
  return nullptr;
}

choral_status* measure_unit(Stopwatch& watch, const Launch& launch, Unit unit, void* sink, double* ops_per_s) {
  int rounds = 1;
  const auto run = [&] { return compute(launch, unit, rounds, sink); };
  for (float ms = 0; rounds < kMostRounds; rounds *= 2) {
    CUDA_TRY(watch.time(launch.stream, run, &ms));
    if (ms >= kLongEnoughMs) break;
  }
  double seconds = 0;
  CUDA_TRY(watch.fastest(launch.stream, run, &seconds));
  *ops_per_s = operations(launch, unit, rounds) / seconds;
  return nullptr;
}

choral_status* measure(choral_device* device, choral_stream* stream, unsigned char* memory, size_t bytes, choral_peaks* peaks) {
  Stopwatch watch(device);
  CUDA_TRY(watch.open());
  Launch launch = device->launch_on(stream);
  CUDA_TRY(measure_memory(watch, launch, memory, bytes, peaks));
  CUDA_TRY(measure_unit(watch, launch, Unit::kF32, memory + bytes, &peaks->f32_ops_per_s));
  CUDA_TRY(choose_wide_products(device, stream));
  launch = device->launch_on(stream);
  CUDA_TRY(measure_unit(watch, launch, Unit::kBf16, memory + bytes, &peaks->bf16_ops_per_s));
  return measure_unit(watch, launch, Unit::kInt8, memory + bytes, &peaks->int8_ops_per_s);
}

}  // namespace

choral_status* measure_peaks(choral_device* device, choral_stream* stream, choral_peaks* result) {
  CUDA_TRY(device->enter("measure_peaks"));
  CUDA_TRY(stream_synchronize(device, stream));
  int cache = 0;
  CUDA_TRY(device->check(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, device->ordinal), "measure_peaks"));
  const size_t bytes = size_t{kCachesRead} * static_cast<size_t>(std::max(cache, 1 << 10)) / 512 * 512;
  void* memory = nullptr;
  CUDA_TRY(device->allocate(bytes + kSinkBytes, &memory));
  choral_peaks peaks{};
  choral_status* failed = measure(device, stream, static_cast<unsigned char*>(memory), bytes, &peaks);
  device->release(memory);
  if (failed != nullptr) return failed;
  write(result, peaks);
  return nullptr;
}

}  // namespace choral_cuda
