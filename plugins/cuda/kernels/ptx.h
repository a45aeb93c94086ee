// The device's own instructions that kernels use, by name: on a device inline PTX (sm_80 on), in emulation what the PTX manual
// says each lane gets. Fragments of mma, by lane = 4·g + t:
//   A [16, 16] of 16 bits: registers (row g, k 2t 2t+1), (row g+8, same k), (row g, k 2t+8 2t+9), (row g+8, same k)
//   B [16, 8]:             registers (k 2t 2t+1, column g), (k 2t+8 2t+9, column g)
//   C [16, 8] of floats:   (row g, columns 2t 2t+1), (row g+8, same columns)
// and of 8 bits with k = 32: four k from 4t on where 16 bits have two from 2t on, and 16 apart where they are 8 apart.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#ifdef CHORAL_CUDA_EMULATION
#include "emulation/emulated_ptx.h"
#else

namespace choral_cuda {

__device__ __forceinline__ void mma_bf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void mma_f16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void mma_s8(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
               : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// An 8x8 matrix of 16-bit elements, a lane holding (row g, columns 2t 2t+1), turned over.
__device__ __forceinline__ uint32_t transpose_8x8(uint32_t x) {
  uint32_t y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

// Four such matrices of a warp from shared memory, where each row is 16 bytes. Lane i names row i % 8 of matrix i / 8.
__device__ __forceinline__ uint4 load_matrices(const void* row) {
  uint4 v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
  return v;
}

// Two floats rounded to nearest even, the first one in the low half.
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  uint32_t y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}

__device__ __forceinline__ uint32_t pack_f16(float low, float high) {
  uint32_t y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}

__device__ __forceinline__ float widen_f16(uint16_t half) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(half));
  return y;
}

// Within two units of the last place; what has no normal number is 0.
__device__ __forceinline__ float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// a - b and a · b of two bf16 each.
__device__ __forceinline__ uint32_t subtract_bf16x2(uint32_t a, uint32_t b) {
  uint32_t y;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(b), "r"(0xbf80bf80u), "r"(a));
  return y;
}
__device__ __forceinline__ uint32_t multiply_bf16x2(uint32_t a, uint32_t b) {
  uint32_t y;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(0x80008000u));
  return y;
}

// Bytes of {a, b}, numbered from a's lowest, by the selector's digits.
__device__ __forceinline__ uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  return __byte_perm(a, b, selector);
}

// 16 bytes of weights, which nobody reads twice soon.
__device__ __forceinline__ uint4 load_streaming(const void* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

// A line on its way into L2.
__device__ __forceinline__ void fetch_line(const void* global) { asm volatile("prefetch.global.L2 [%0];" ::"l"(global)); }

// 16 bytes to shared memory, visible to this thread after wait_async_copies and to others after a barrier behind it. Zeros where
// not `valid`.
__device__ __forceinline__ void copy_16_async(void* shared, const void* global, bool valid) {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(valid ? 16 : 0) : "memory");
}
__device__ __forceinline__ void commit_async_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until at most `groups` of the committed ones are under way.
template <int groups>
__device__ __forceinline__ void wait_async_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}

}  // namespace choral_cuda
#endif

namespace choral_cuda {

__device__ __forceinline__ float low_bf16(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_bf16(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }
__device__ __forceinline__ float low_f16(uint32_t pair) { return widen_f16(static_cast<uint16_t>(pair)); }
__device__ __forceinline__ float high_f16(uint32_t pair) { return widen_f16(static_cast<uint16_t>(pair >> 16)); }

}  // namespace choral_cuda
