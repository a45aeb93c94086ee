// The barriers of barriers.h in emulation. A copy's place holds NaNs until somebody waits for its barrier. Ends the process over
// a barrier that was not started, over arrivals beyond those that it counts, and over copies beyond shared memory or from
// addresses that are no multiple of 16.
#pragma once

#include <cstdint>

namespace choral_cuda {

inline constexpr uint32_t kBarrierBytes = 8;

void start_barrier(uint32_t barrier, uint32_t arrivals);
inline void show_barriers() {}
void arrive(uint32_t barrier);
void arrive_and_expect(uint32_t barrier, uint32_t bytes);
void copy_bulk(uint32_t shared, const void* global, uint32_t bytes, uint32_t barrier);
void wait_phase(uint32_t barrier, uint32_t parity);

}  // namespace choral_cuda
