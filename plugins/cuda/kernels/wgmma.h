// Products of a warpgroup, sm_90a's: four warps, whose first is a multiple of four, multiply 64 rows of A by 32, 64, 128
// or 256 columns of B. Warp w has rows 16w to 16w + 15 of A and of the sums in the fragments of mma (ptx.h); B, here rows of x,
// lies in shared memory. They run beside the warps' own code, so
//   - start_group() comes before the first product of a group, behind whatever wrote its registers, end_group() after its last;
//   - nobody reads or writes a group's sums or the shared memory of its B before wait_groups() says that it is done;
//   - what threads wrote to shared memory (by cp.async too) is seen behind show_to_products() of the writer and a barrier.
//
// B is made of core matrices of 8 rows by 16 bytes, each 128 bytes in one piece, row by row: such a row's 4 bytes are the
// register that mma's B fragment has there, so a core matrix is such a register of all lanes.
//
// Without sm_90a products do nothing: who chooses them has compared results (../wide_products.cc).
#pragma once

#include "ptx.h"

namespace choral_cuda {

inline constexpr int kWarpgroup = 128;      // threads
inline constexpr int kWarpgroupRows = 64;   // of A
inline constexpr int kWarpgroupTiles = 32;  // of eight columns of B, at most
inline constexpr int kCoreBytes = 128;

// B from `address` in shared memory on (shared_address()): core matrices that follow each other along k lie `k_bytes` apart,
// along its columns `column_bytes`.
__host__ __device__ constexpr uint64_t core_matrices(uint32_t address, uint32_t k_bytes, uint32_t column_bytes) {
  return uint64_t{(address & 0x3ffffu) >> 4} | uint64_t{k_bytes >> 4} << 16 | uint64_t{column_bytes >> 4} << 32;
}

template <class Sum, int tiles = kWarpgroupTiles>
using WarpgroupSums = Sum[tiles][4];

}  // namespace choral_cuda

#ifdef CHORAL_CUDA_EMULATION
#include "emulation/emulated_wgmma.h"
#else

namespace choral_cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define CHORAL_WGMMA(...) asm volatile(__VA_ARGS__)
#else
#define CHORAL_WGMMA(...)
#endif
#define CHORAL_TILE(kind, n) kind(c[n][0]), kind(c[n][1]), kind(c[n][2]), kind(c[n][3])
#define CHORAL_4_TILES(kind) CHORAL_TILE(kind, 0), CHORAL_TILE(kind, 1), CHORAL_TILE(kind, 2), CHORAL_TILE(kind, 3)
#define CHORAL_8_TILES(kind) \
  CHORAL_4_TILES(kind), CHORAL_TILE(kind, 4), CHORAL_TILE(kind, 5), CHORAL_TILE(kind, 6), CHORAL_TILE(kind, 7)
#define CHORAL_16_TILES(kind)                                                                                     \
  CHORAL_8_TILES(kind), CHORAL_TILE(kind, 8), CHORAL_TILE(kind, 9), CHORAL_TILE(kind, 10), CHORAL_TILE(kind, 11), \
      CHORAL_TILE(kind, 12), CHORAL_TILE(kind, 13), CHORAL_TILE(kind, 14), CHORAL_TILE(kind, 15)
#define CHORAL_32_TILES(kind)                                                                                            \
  CHORAL_16_TILES(kind), CHORAL_TILE(kind, 16), CHORAL_TILE(kind, 17), CHORAL_TILE(kind, 18), CHORAL_TILE(kind, 19),     \
      CHORAL_TILE(kind, 20), CHORAL_TILE(kind, 21), CHORAL_TILE(kind, 22), CHORAL_TILE(kind, 23), CHORAL_TILE(kind, 24), \
      CHORAL_TILE(kind, 25), CHORAL_TILE(kind, 26), CHORAL_TILE(kind, 27), CHORAL_TILE(kind, 28), CHORAL_TILE(kind, 29), \
      CHORAL_TILE(kind, 30), CHORAL_TILE(kind, 31)
#define CHORAL_16_SUMS "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define CHORAL_32_SUMS CHORAL_16_SUMS ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define CHORAL_64_SUMS                                                       \
  CHORAL_32_SUMS                                                             \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49" \
  ",%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define CHORAL_128_SUMS                                                          \
  CHORAL_64_SUMS                                                                 \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"             \
  ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"             \
  ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111" \
  ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
// C += A·B for each number of B's tiles: `shape_begin` and `shape_end` are the instruction's name around B's columns.
#define CHORAL_PRODUCTS(name, Sum, kind, shape_begin, shape_end, end)                                  \
  __device__ __forceinline__ void name(WarpgroupSums<Sum, 4>& c, const uint32_t(&a)[4], uint64_t b) {  \
    CHORAL_WGMMA(shape_begin "32" shape_end " {" CHORAL_16_SUMS "},{%16,%17,%18,%19},%20" end          \
                 : CHORAL_4_TILES(kind)                                                                \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                \
  }                                                                                                    \
  __device__ __forceinline__ void name(WarpgroupSums<Sum, 8>& c, const uint32_t(&a)[4], uint64_t b) {  \
    CHORAL_WGMMA(shape_begin "64" shape_end " {" CHORAL_32_SUMS "},{%32,%33,%34,%35},%36" end          \
                 : CHORAL_8_TILES(kind)                                                                \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                \
  }                                                                                                    \
  __device__ __forceinline__ void name(WarpgroupSums<Sum, 16>& c, const uint32_t(&a)[4], uint64_t b) { \
    CHORAL_WGMMA(shape_begin "128" shape_end " {" CHORAL_64_SUMS "},{%64,%65,%66,%67},%68" end         \
                 : CHORAL_16_TILES(kind)                                                               \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                \
  }                                                                                                    \
  __device__ __forceinline__ void name(WarpgroupSums<Sum, 32>& c, const uint32_t(&a)[4], uint64_t b) { \
    CHORAL_WGMMA(shape_begin "256" shape_end " {" CHORAL_128_SUMS "},{%128,%129,%130,%131},%132" end   \
                 : CHORAL_32_TILES(kind)                                                               \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                \
  }

// The same with A in shared memory, as core matrices too, whose "columns" are rows of A.
#define CHORAL_PRODUCTS_OF_SHARED(name, kind)                                                                           \
  __device__ __forceinline__ void name(WarpgroupSums<float, 4>& c, uint64_t a, uint64_t b) {                            \
    CHORAL_WGMMA("wgmma.mma_async.sync.aligned.m64n32k16.f32." kind "." kind " {" CHORAL_16_SUMS "},%16,%17,1,1,1,0,0;" \
                 : CHORAL_4_TILES("+f")                                                                                 \
                 : "l"(a), "l"(b));                                                                                     \
  }
CHORAL_PRODUCTS_OF_SHARED(wgmma_bf16, "bf16")
CHORAL_PRODUCTS_OF_SHARED(wgmma_f16, "f16")

CHORAL_PRODUCTS(wgmma_bf16, float, "+f", "wgmma.mma_async.sync.aligned.m64n", "k16.f32.bf16.bf16", ",1,1,1,0;")
CHORAL_PRODUCTS(wgmma_f16, float, "+f", "wgmma.mma_async.sync.aligned.m64n", "k16.f32.f16.f16", ",1,1,1,0;")
CHORAL_PRODUCTS(wgmma_s8, int32_t, "+r", "wgmma.mma_async.sync.aligned.m64n", "k32.s32.s8.s8", ",1;")

__device__ __forceinline__ void start_group() { CHORAL_WGMMA("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void end_group() { CHORAL_WGMMA("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until at most `groups` of those that ended are under way.
template <int groups>
__device__ __forceinline__ void wait_groups() {
  CHORAL_WGMMA("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
}
// No use of the register moves over this place: the compiler sees no sums in start_group() and wait_groups().
__device__ __forceinline__ void hold(float& x) { asm volatile("" : "+f"(x)::"memory"); }
__device__ __forceinline__ void hold(int32_t& x) { asm volatile("" : "+r"(x)::"memory"); }
__device__ __forceinline__ void hold(uint32_t& x) { asm volatile("" : "+r"(x)::"memory"); }

__device__ __forceinline__ void show_to_products() { CHORAL_WGMMA("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

#undef CHORAL_WGMMA
#undef CHORAL_TILE
#undef CHORAL_4_TILES
#undef CHORAL_8_TILES
#undef CHORAL_16_TILES
#undef CHORAL_32_TILES
#undef CHORAL_16_SUMS
#undef CHORAL_32_SUMS
#undef CHORAL_64_SUMS
#undef CHORAL_128_SUMS
#undef CHORAL_PRODUCTS
#undef CHORAL_PRODUCTS_OF_SHARED

}  // namespace choral_cuda
#endif
