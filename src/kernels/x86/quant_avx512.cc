// The quantised GEMM with AVX-512BW but no VNNI: vpmaddubsw (u8 x s8, pairs summed in int16), then vpmaddwd with ones to int32.
// Exact, because nothing leaves int16: see kPairs below. 8-bit weights go in as |w| against x with w's sign: |w| <= 128 and
// |x| <= 127 (quantise_rows never makes -128) give at most 2 * 128 * 127 = 32512. Tiles take x ^ sign, which is -x - 1 where w
// is negative: at least 2 * 128 * -128 = -32768; what that lacks is the sum of those |w|, the same for every row.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kernels/gemm/gemm_quant_kernel.h"
#include "kernels/x86/intrinsics.h"

// UBSan and ASan together make minutes of compile time of these unrolled templates; ASan alone checks what matters here, the
// loads.
#define CHORAL_QUANT_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"), no_sanitize("undefined")))
#define CHORAL_SIMD CHORAL_QUANT_TARGET __attribute__((always_inline)) inline

namespace choral::kernels::x86 {
namespace {

#include "kernels/x86/simd512_inl.h"

// How many pair sums of (2^bits - 1) * 127 * 2 an int16 holds: 15: 8 x 3810, 31: 4 x 7874, 63: 2 x 16002; kBits are those of what
// is multiplied, QuantForm::value_bits().
template <int kBits>
constexpr int kPairs = kBits >= 8 ? 1 : 1 << (7 - kBits);

struct Simd : Simd512 {
  static constexpr const char* kName = "avx512 vpmaddubsw";
  static constexpr int tile_rows(QuantForm) { return 4; }
  static constexpr int kTilePanels = 2;
  static constexpr int kPrefetchBytes = 2048;
  static constexpr bool kSumsInRegisters = true;  // of floats, between blocks
  static constexpr bool reads_packed(QuantForm) { return false; }
  static constexpr int tile_bits(int bits) { return bits == 8 ? kQuantSplitBits : bits; }
  static constexpr int zero(QuantForm form) { return form.value_bits() >= 8 ? 0 : form.zero(); }
  static CHORAL_SIMD Bytes recentre(Bytes stored) { return _mm512_xor_si512(stored, _mm512_set1_epi8(-128)); }

  template <int kBits>
  struct Weight {
    Bytes u;
    CHORAL_SIMD void set(Bytes v) {
      asm("" : "+v"(v));  // in a register, once: g++ 12 loads it for every row otherwise
      u = v;
    }
    CHORAL_SIMD void load(const uint8_t* p) { set(Simd512::load(p)); }
  };
  template <int kBits>
  struct Sum {
    __m512i i, pairs;
    CHORAL_SIMD void begin(int32_t) {}
    template <int kLocal>
    CHORAL_SIMD void add(const Weight<kBits>& w, Bytes x) {
      Bytes products;
      if constexpr (kBits == kQuantSplitBits) {
        products = _mm512_maddubs_epi16(w.magnitude, _mm512_xor_si512(x, w.sign));
      } else if constexpr (kBits == 8) {
        products = _mm512_maddubs_epi16(w.magnitude, _mm512_mask_sub_epi8(x, w.negative, _mm512_setzero_si512(), x));
      } else {
        products = _mm512_maddubs_epi16(w.u, x);
      }
      Bytes words = kLocal % kPairs<kBits> == 0 ? products : _mm512_add_epi16(pairs, products);
      if constexpr (kLocal % kPairs<kBits> == kPairs<kBits> - 1) {
        Bytes next = _mm512_madd_epi16(words, _mm512_set1_epi16(1));
        if constexpr (kLocal >= kPairs<kBits>) next = _mm512_add_epi32(i, next);
        asm("" : "+v"(next));  // stays in its register
        i = next;
      } else {
        asm("" : "+v"(words));
        pairs = words;
      }
    }
    template <bool kStarts>
    CHORAL_SIMD Bytes total(int32_t start) const {
      return kStarts ? _mm512_add_epi32(i, _mm512_set1_epi32(start)) : i;
    }
  };
};

template <>
struct Simd::Weight<8> {
  Bytes magnitude;
  __mmask64 negative;
  CHORAL_SIMD void set(Bytes v) {
    magnitude = _mm512_abs_epi8(v);
    negative = _mm512_movepi8_mask(v);
  }
};
template <>
struct Simd::Weight<kQuantSplitBits> {
  static constexpr int kSignsAt = kQuantSteps * kQuantStepBytes;
  Bytes magnitude, sign;  // |w| (x ^ sign) is w x, less |w| where w is negative
  CHORAL_SIMD void load(const uint8_t* p) {
    Bytes m = Simd512::load(p), s = Simd512::load(p + kSignsAt);
    asm("" : "+v"(m), "+v"(s));
    magnitude = m;
    sign = s;
  }
  // Stores weights as load() wants them; gives `sum` and the magnitudes of the negative ones.
  static CHORAL_SIMD Bytes split(Bytes v, uint8_t* out, Bytes sum) {
    const Bytes signs = _mm512_movm_epi8(_mm512_movepi8_mask(v)), magnitudes = _mm512_abs_epi8(v);
    Simd512::store(out, magnitudes);
    Simd512::store(out + kSignsAt, signs);
    const Bytes pairs = _mm512_maddubs_epi16(_mm512_and_si512(magnitudes, signs), _mm512_set1_epi8(1));
    return Simd512::add(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
  }
};

#include "kernels/x86/quant_kernel_inl.h"

}  // namespace

QuantKernel quant_kernel_avx512(QuantForm form) { return choose_kernel(form); }

}  // namespace choral::kernels::x86
