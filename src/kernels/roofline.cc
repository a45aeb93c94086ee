#include "kernels/roofline.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "base/aligned_buffer.h"
#include "kernels/peak_loops.h"

namespace choral::kernels {
namespace {

constexpr size_t kReadBytes = size_t{512} << 20;  // several times any last-level cache a thread can fill
constexpr size_t kLeastReadBytes = size_t{32} << 20;
constexpr int64_t kChunkBytes = int64_t{8} << 20;
constexpr double kSecondsEach = 0.3;

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double measure_read(const Context& ctx) {
  AlignedBuffer buffer;
  for (size_t bytes = kReadBytes; bytes >= kLeastReadBytes && buffer.size_bytes() == 0; bytes /= 2) {
    auto allocated = AlignedBuffer::allocate(bytes);
    if (allocated.ok()) buffer = std::move(*allocated);
  }
  const auto bytes = static_cast<int64_t>(buffer.size_bytes());
  if (bytes == 0) return 0;
  // Written first: untouched pages are one shared page of zeros, which is never read from memory.
  ctx.pool.parallel_for(bytes / kChunkBytes, 1, [&](int64_t begin, int64_t end, int) {
    std::memset(buffer.data() + begin * kChunkBytes, 1, (end - begin) * kChunkBytes);
  });
  std::atomic<uint64_t> sink{0};
  double best = 0;
  const auto start = Clock::now();
  for (int round = 0; round < 2 || seconds_since(start) < kSecondsEach; ++round) {
    for (const Reader reader : peak_loops(ctx.level).readers) {
      const auto begun = Clock::now();
      ctx.pool.parallel_for(bytes / kChunkBytes, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t c = begin; c < end; ++c) sink.fetch_xor(reader(buffer.data() + c * kChunkBytes, kChunkBytes));
      });
      best = std::max(best, static_cast<double>(bytes) / seconds_since(begun) / 1e9);
    }
  }
  return best;
}

// Giga-operations a second of all threads: best of rounds, each some milliseconds in small chunks so that no thread idles.
double measure_burn(const Context& ctx, Burner burn) {
  constexpr int64_t kSteps = 20'000;
  const int64_t chunks = int64_t{ctx.pool.size()} * 16;
  const auto start = Clock::now();
  double best = 0;
  for (int round = 0; round < 3 || seconds_since(start) < kSecondsEach; ++round) {
    double done = 0;  // the same for each chunk
    const auto begun = Clock::now();
    ctx.pool.parallel_for(chunks, 1, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t c = begin; c < end; ++c) {
        const double operations = burn(kSteps);
        if (thread == 0) done = operations;
      }
    });
    best = std::max(best, done * static_cast<double>(chunks) / seconds_since(begun) / 1e9);
  }
  return best;
}

}  // namespace

MachinePeaks measure_peaks(const Context& ctx) {
  const PeakLoops& loops = peak_loops(ctx.level);
  return {measure_read(ctx), measure_burn(ctx, loops.fma), measure_burn(ctx, loops.int8),
          loops.bf16 != nullptr ? measure_burn(ctx, loops.bf16) : 0};
}

}  // namespace choral::kernels
