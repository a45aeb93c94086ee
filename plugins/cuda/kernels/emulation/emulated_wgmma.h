// The products of wgmma.h in emulation. They are made when their group is waited for: until then their sums are NaNs (-1), and
// who overwrites their B is found out by what comes of it. Ends the process over a product without start_group() before it, over
// B that a descriptor has beyond shared memory, and over copies that the block's threads were not shown behind.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace choral_cuda {

#define CHORAL_PRODUCTS(tiles)                                                        \
  void wgmma_bf16(WarpgroupSums<float, tiles>& c, const uint32_t(&a)[4], uint64_t b); \
  void wgmma_f16(WarpgroupSums<float, tiles>& c, const uint32_t(&a)[4], uint64_t b);  \
  void wgmma_s8(WarpgroupSums<int32_t, tiles>& c, const uint32_t(&a)[4], uint64_t b);
CHORAL_PRODUCTS(4)
CHORAL_PRODUCTS(8)
CHORAL_PRODUCTS(16)
CHORAL_PRODUCTS(32)
#undef CHORAL_PRODUCTS

void wgmma_bf16(WarpgroupSums<float, 4>& c, uint64_t a, uint64_t b);
void wgmma_f16(WarpgroupSums<float, 4>& c, uint64_t a, uint64_t b);

void start_group();
void end_group();
void wait_until_under_way(int groups);
template <int groups>
void wait_groups() {
  wait_until_under_way(groups);
}
inline void hold(float&) {}
inline void hold(int32_t&) {}
inline void hold(uint32_t&) {}

inline void show_to_products() { cuda_emulation::show_copies(); }
inline uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(static_cast<const unsigned char*>(shared) - cuda_emulation::current_block->shared);
}

}  // namespace choral_cuda
