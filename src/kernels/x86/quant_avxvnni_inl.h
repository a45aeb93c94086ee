// The quantised GEMM with vpdpbusd on 256 bits, which adds four u8 x s8 products to each int32 lane without saturation.
// Weights are the unsigned operand as stored (w + zero); sums begin at -zero * sum(q), which quantise_rows left beside x. As
// int8_avxvnni_inl.h, it is included inside an unnamed namespace with CHORAL_DPBUSD and, here, CHORAL_QUANT_TARGET defined. No
// include guard.

#define CHORAL_SIMD CHORAL_QUANT_TARGET __attribute__((always_inline)) inline

#include "kernels/x86/simd256_inl.h"

struct Simd : Simd256 {
  static constexpr const char* kName = "avx vnni";
  static constexpr int tile_rows(QuantForm) { return 6; }  // 6 x 2 sums, 2 weights, x and a mask are the 16 registers
  static constexpr int kTilePanels = 1;
  static constexpr int kPrefetchBytes = 2048;
  static constexpr bool kSumsInRegisters = false;  // of floats, between blocks
  static constexpr int zero(QuantForm form) { return form.zero(); }
  // As at level vnni: 4 bits are unpacked on the way, the others and codes become bytes first.
  static constexpr bool reads_packed(QuantForm form) { return form.value_bits() == 4 || form.bits == 8; }
  static constexpr int tile_bits(int bits) { return bits == 4 ? 4 : 8; }
  static CHORAL_SIMD Bytes recentre(Bytes stored) { return stored; }

  template <int kBits>
  struct Weight {
    Bytes u;
    CHORAL_SIMD void set(Bytes v) {
      asm("" : "+x"(v));  // in a register, once: g++ 12 loads it for every row otherwise
      u = v;
    }
    CHORAL_SIMD void load(const uint8_t* p) { set(Simd256::load(p)); }
  };
  template <int kBits>
  struct Sum {
    __m256i i;
    CHORAL_SIMD void begin(int32_t start) { i = _mm256_set1_epi32(start); }
    template <int kLocal>
    CHORAL_SIMD void add(const Weight<kBits>& w, Bytes x) {
      Bytes next = CHORAL_DPBUSD(i, w.u, x);
      asm("" : "+x"(next));  // stays in its register
      i = next;
    }
    template <bool kStarts>
    CHORAL_SIMD Bytes total(int32_t) const {
      return i;
    }
  };
};

#include "kernels/x86/quant_kernel_inl.h"
