// Barriers in shared memory, named by shared_address(), and copies from global memory that complete them (sm_90's mbarrier and
// cp.async.bulk). A phase of a barrier ends when its arrivals and the bytes that it was told to expect are there; then the next
// one begins. Phases are told apart by parity, the first one's is 0.
#pragma once

#include "wgmma.h"

#ifdef CHORAL_CUDA_EMULATION
#include "emulation/emulated_barriers.h"
#else

namespace choral_cuda {

inline constexpr uint32_t kBarrierBytes = 8;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define CHORAL_BARRIER(...) asm volatile(__VA_ARGS__)
#else
#define CHORAL_BARRIER(...)
#endif

// By one thread; others use it behind show_barriers() and a barrier of the block.
__device__ __forceinline__ void start_barrier(uint32_t barrier, uint32_t arrivals) {
  CHORAL_BARRIER("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void show_barriers() { CHORAL_BARRIER("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ __forceinline__ void arrive(uint32_t barrier) {
  CHORAL_BARRIER("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// An arrival, and so many bytes that copies of this phase will bring.
__device__ __forceinline__ void arrive_and_expect(uint32_t barrier, uint32_t bytes) {
  CHORAL_BARRIER("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Addresses and sizes are multiples of 16.
__device__ __forceinline__ void copy_bulk(uint32_t shared, const void* global, uint32_t bytes, uint32_t barrier) {
  CHORAL_BARRIER("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
                 "l"(global), "r"(bytes), "r"(barrier)
                 : "memory");
}
// Until a phase of this parity has ended: that of the phase under way, or of the one before, for which nobody waits.
__device__ __forceinline__ void wait_phase(uint32_t barrier, uint32_t parity) {
  uint32_t done = 1;
  do {
    CHORAL_BARRIER(
        "{\n.reg .pred ended;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
        "selp.u32 %0, 1, 0, ended;\n}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (done == 0);
}

#undef CHORAL_BARRIER

}  // namespace choral_cuda
#endif
