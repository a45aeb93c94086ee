// Int8 products with vpdpbusd on 256 bits, which adds four u8 x s8 products to each int32 lane without saturation, and so gives
// what the other levels give. Weights are the unsigned operand as stored (w + 128); that they are 128 too large is in where a sum
// starts. The instruction has an encoding of AVX-VNNI and another of AVX-512. The including .cc defines its intrinsic,
// CHORAL_DPBUSD, and CHORAL_INT8_TARGET, the target attribute with the features that the encoding asks for, and includes this
// inside an unnamed namespace, which has kKernels then. No include guard.

#define CHORAL_INT8_REGISTER "+x"
#define CHORAL_SIMD CHORAL_INT8_TARGET __attribute__((always_inline)) inline

#include "kernels/x86/simd256_inl.h"

struct Simd : Simd256 {
  static constexpr const char* kName = "avx vnni";
  static constexpr int kParts = 2;
  static constexpr int kLanes = 8;
  static constexpr int kStepBytes = 4;
  static constexpr int kTileRows = 6;  // 6 x 2 sums, 2 weights and x are 15 of 16 registers
  static constexpr int kDirectRows = kTileRows;
  static constexpr int at_once(int rows) { return rows == 1 ? 8 : rows == 2 ? 4 : 2; }
  static constexpr int kBlockK = 1024;
  static constexpr auto kFetchTo = _MM_HINT_T0;

  static CHORAL_SIMD Ints load_weights(const std::byte* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }
  static CHORAL_SIMD Ints add_products(Ints sum, Ints w, Ints q) { return CHORAL_DPBUSD(sum, w, q); }
  static CHORAL_SIMD void store_total(int32_t* to, Ints sum, bool resume) {
    store_ints(to, resume ? add(sum, load_ints(to)) : sum);
  }
  static CHORAL_SIMD Ints broadcast(const std::byte* four) {
    int32_t word;
    std::memcpy(&word, four, sizeof word);
    return _mm256_set1_epi32(word);
  }
};

#include "kernels/x86/int8_kernel_inl.h"
