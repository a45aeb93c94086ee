// Int8 products with AVX512_VNNI: vpdpbusd adds four u8 x s8 products to each int32 lane without saturation. Weights are the
// unsigned operand as stored (w + 128); that they are 128 too large is in where a sum starts.
#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/gemm/int8/int8_kernels.h"
#include "kernels/gemm/int8/int8_panels.h"
#include "kernels/x86/intrinsics.h"

// UBSan and ASan together make minutes of compile time of these unrolled templates; ASan alone checks what matters here, the
// loads.
#define CHORAL_INT8_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma"), no_sanitize("undefined")))
#define CHORAL_INT8_REGISTER "+v"
#define CHORAL_SIMD CHORAL_INT8_TARGET __attribute__((always_inline)) inline

namespace choral::kernels::x86 {
namespace {

#include "kernels/x86/simd512_inl.h"

struct Simd : Simd512 {
  static constexpr const char* kName = "avx512 vnni";
  static constexpr int kParts = 1;
  static constexpr int kLanes = 16;
  static constexpr int kStepBytes = 4;
  static constexpr int kTileRows = 6;     // 6 x 4 sums, 4 weights and x are 29 of 32 registers
  static constexpr int kDirectRows = 12;  // 12 x 2 sums, 2 weights and x are 27
  static constexpr int at_once(int rows) { return rows <= kTileRows ? 4 : 2; }
  static constexpr int kBlockK = 2048;  // of four panels 128 KiB: L2 gives them as fast as they are multiplied
  static constexpr auto kFetchTo = _MM_HINT_T0;

  static CHORAL_SIMD Ints load_weights(const std::byte* p) { return _mm512_load_si512(p); }
  static CHORAL_SIMD Ints add_products(Ints sum, Ints w, Ints q) { return _mm512_dpbusd_epi32(sum, w, q); }
  static CHORAL_SIMD void store_total(int32_t* to, Ints sum, bool resume) {
    _mm512_store_si512(to, resume ? add(sum, load_ints(to)) : sum);
  }
  static CHORAL_SIMD Ints broadcast(const std::byte* four) {
    int32_t word;
    std::memcpy(&word, four, sizeof word);
    return _mm512_set1_epi32(word);
  }
};

#include "kernels/x86/int8_kernel_inl.h"

}  // namespace

const Int8Kernels& vnni_int8_kernels() { return kKernels; }

}  // namespace choral::kernels::x86
