// Floats to int8 on vectors, shared by quantise_planes.cc and the fused kernels so that all of them give the same bits: those of
// quantise_planes.h's definition (blocks of 32) and of quant/row_quant.h's (whole rows).
// Included once per Highway target (no include guard in the usual sense). Sources: row_source_inl.h.
#if defined(CHORAL_QUANTISE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CHORAL_QUANTISE_INL
#undef CHORAL_QUANTISE_INL
#else
#define CHORAL_QUANTISE_INL
#endif

#include <hwy/highway.h>

#include <bit>
#include <cstring>
#include <limits>

#include "kernels/quant/quantise_planes.h"
#include "kernels/row_source_inl.h"

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {

inline constexpr int kLanes = static_cast<int>(HWY_LANES(float));
inline constexpr int kBlockVectors = 32 / kLanes;
using I8 = hn::Rebind<int8_t, F32>;

inline constexpr int kGroupBlocks = 16;            // whose scales are made together: one division for a vector of them
inline constexpr uint32_t kOneBits = 0x3F800000u;  // stands for the max|x| of blocks that a group lacks
inline constexpr int kGroupFloats = kGroupBlocks * 32;

// |x| as integers: they order like the values, infinity and then NaN above all.
HWY_INLINE VI magnitude_bits(VF x) { return hn::BitCast(I32(), hn::Abs(x)); }

HWY_INLINE uint32_t largest_of(VI magnitudes) { return static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(I32(), magnitudes))); }

#if HWY_TARGET != HWY_SCALAR
// Of lanes 0, 4, 8 …, of lanes 1, 5, 9 …, and so on.
template <class D>
HWY_INLINE void store_largest_fours(D d, hn::Vec<D> v, uint32_t* out) {
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    store_largest_fours(half, hn::Max(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), out);
  } else {
    hn::StoreU(v, d, reinterpret_cast<int32_t*>(out));
  }
}
#endif

// max|x| / 127 from the bits of max|x|, or NaN where that is not finite.
HWY_INLINE float scale_of(uint32_t bits) {
  return bits < 0x7F800000u ? std::bit_cast<float>(bits) / 127.0f : std::numeric_limits<float>::quiet_NaN();
}

// rint(x / s) within ±127 for 0 < s = max|x| / 127, where x / s is the quotient rounded to float.
// A division takes four to eight times as long as what stands here where there is an FMA: the quotient by the reciprocal is
// within 2 ulp of x / s, and one correction by its remainder within 2^-21 ulp, before it is rounded. That could round to another
// float than x / s only so near to the middle of two floats, and be another integer only where one of these is a tie, n + 1/2:
// for none of the 2^23 mantissas of s and the 254 such middles it is (an exhaustive search; the tests look at values next to
// ties). It needs a remainder and a 1/s that are normal: 2^-78 < s < 2^122. For |x| < s/2, where the remainder may not be, the
// result is 0 anyway.
inline constexpr float kLeastByReciprocal = 0x1p-78f, kLargestByReciprocal = 0x1p122f;
HWY_INLINE bool by_reciprocal(float scale) {
  return HWY_NATIVE_FMA && scale > kLeastByReciprocal && scale < kLargestByReciprocal;
}

template <bool kByReciprocal>
HWY_INLINE VI rounded_quotient(VF x, VF scale, VF reciprocal) {
  VF quotient;
  if constexpr (kByReciprocal) {
    quotient = hn::Mul(x, reciprocal);
    quotient = hn::MulAdd(hn::NegMulAdd(quotient, scale, x), reciprocal, quotient);
    return hn::NearestInt(quotient);  // |x / s| < 127.0001: s is within 2^-24 of max|x| / 127
  } else {
    const I32 di;
    quotient = hn::Div(x, scale);
    return hn::Max(hn::Min(hn::NearestInt(quotient), hn::Set(di, 127)), hn::Set(di, -127));  // s may be subnormal
  }
}

// The block's integers as bytes, and the sums of the first and of the last 16. One instruction adds unsigned bytes: those of
// q + 128.
HWY_INLINE void store_block(const VI (&q)[kBlockVectors], int8_t* out, int32_t (&sums)[2]) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
#if HWY_TARGET == HWY_AVX3  // packs works within 128-bit lanes: what it mixes, one permutation puts in order
  const __m512i words = _mm512_packs_epi32(q[0].raw, q[1].raw);
  const __m512i order = _mm512_castsi256_si512(_mm256_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13));
  const __m256i bytes = _mm512_castsi512_si256(_mm512_permutexvar_epi32(order, _mm512_packs_epi16(words, words)));
#else
  const __m256i words[] = {_mm256_packs_epi32(q[0].raw, q[1].raw), _mm256_packs_epi32(q[2].raw, q[3].raw)};
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(words[0], words[1]), order);
#endif
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), bytes);
  const __m256i unsigned_bytes = _mm256_xor_si256(bytes, _mm256_set1_epi8(-128));
  const __m256i eights = _mm256_sad_epu8(unsigned_bytes, _mm256_setzero_si256());
  const __m256i sixteens = _mm256_add_epi32(eights, _mm256_shuffle_epi32(eights, 0x4E));
  sums[0] = _mm_cvtsi128_si32(_mm256_castsi256_si128(sixteens)) - 16 * 128;
  sums[1] = _mm_cvtsi128_si32(_mm256_extracti128_si256(sixteens, 1)) - 16 * 128;
#else
  for (int i = 0; i < kBlockVectors; ++i) hn::StoreU(hn::DemoteTo(I8(), q[i]), I8(), out + i * kLanes);
  for (int half = 0; half < 2; ++half) {
    VI sum = q[half * (kBlockVectors / 2)];
    for (int i = 1; i < kBlockVectors / 2; ++i) sum = hn::Add(sum, q[half * (kBlockVectors / 2) + i]);
    sums[half] = hn::GetLane(hn::SumOfLanes(I32(), sum));
  }
#endif
}

// The largest lanes of four vectors, which are not negative.
HWY_INLINE void store_largest_of_4(const VI (&m)[4], uint32_t* out) {
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < 4; ++i) out[i] = largest_of(m[i]);
#else
  const I32 d;
  const hn::RepartitionToWide<I32> d64;
  const auto pairs = [&](VI a, VI b) HWY_ATTR { return hn::Max(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)); };
  const auto ab = hn::BitCast(d64, pairs(m[0], m[1])), ce = hn::BitCast(d64, pairs(m[2], m[3]));
  const VI all = hn::Max(hn::BitCast(d, hn::InterleaveLower(d64, ab, ce)), hn::BitCast(d, hn::InterleaveUpper(d64, ab, ce)));
  store_largest_fours(d, all, out);
#endif
}

// One block with a scale s > 0. What the block leaves over, x - s·q, goes to `rest` unless that is null; returns the magnitudes
// of it, of which the largest lane is max|rest|.
template <bool kByReciprocal>
HWY_INLINE VI quantise_block(const float* x, float s, float reciprocal, QuantiseOptions options, QuantisedBlock& out,
                             float* rest) {
  const F32 d;
  const VF scale = hn::Set(d, s);
  VI q[kBlockVectors];
  VI largest = hn::Zero(I32());
  for (int i = 0; i < kBlockVectors; ++i) {
    const VF v = hn::LoadU(d, x + i * kLanes);
    q[i] = rounded_quotient<kByReciprocal>(v, scale, hn::Set(d, reciprocal));
    if (rest == nullptr) continue;
    const VF over = hn::Sub(v, hn::Mul(scale, hn::ConvertTo(d, q[i])));  // rounded twice, as defined
    hn::Store(over, d, rest + i * kLanes);
    largest = hn::Max(largest, magnitude_bits(over));
  }
  int32_t sums[2];
  store_block(q, out.q, sums);
  out.scale = s;
  out.start[0] = -options.zero * (options.halves ? sums[0] : sums[0] + sums[1]);
  out.start[1] = options.halves ? -options.zero * sums[1] : 0;
  out.sum = s * static_cast<float>(sums[0] + sums[1]);
  return largest;
}

// A block whatever its scale; the same.
HWY_INLINE VI quantise_any_block(const float* x, uint32_t largest, QuantiseOptions options, QuantisedBlock& out, float* rest) {
  const float scale = scale_of(largest);
  if (scale > 0.0f) return quantise_block<false>(x, scale, 0.0f, options, out, rest);
  out = QuantisedBlock{};  // zero, or not finite
  out.scale = out.sum = scale;
  if (rest != nullptr) std::memcpy(rest, x, 32 * sizeof(float));
  return hn::Set(I32(), static_cast<int32_t>(largest));
}

// The blocks of a group of one plane. `largest` are the bits of each block's max|x|; x and rest are aligned.
HWY_INLINE void quantise_group(const float* x, int blocks, const uint32_t* largest, QuantiseOptions options, QuantisedBlock* out,
                               float* rest, uint32_t* rest_largest) {
  const F32 d;
  alignas(64) float scales[kGroupBlocks], reciprocals[kGroupBlocks];
  const VI one = hn::Set(I32(), static_cast<int32_t>(kOneBits));
  bool by_reciprocal = HWY_NATIVE_FMA;
  for (int b = 0; b < kGroupBlocks; b += kLanes) {
    const VF scale = hn::Div(hn::BitCast(d, hn::Load(I32(), reinterpret_cast<const int32_t*>(largest) + b)), hn::Set(d, 127.0f));
    const auto within = hn::And(hn::Gt(scale, hn::Set(d, kLeastByReciprocal)), hn::Lt(scale, hn::Set(d, kLargestByReciprocal)));
    by_reciprocal &= hn::AllTrue(d, within);
    hn::Store(scale, d, scales + b);
    hn::Store(hn::Div(hn::Set(d, 1.0f), scale), d, reciprocals + b);
  }
  for (int begin = 0; begin < blocks; begin += 4) {
    VI magnitudes[4] = {one, one, one, one};
    const int end = blocks - begin < 4 ? blocks - begin : 4;
    if (by_reciprocal && end == 4) {
      for (int i = 0; i < 4; ++i) {
        const int b = begin + i;
        magnitudes[i] = quantise_block<HWY_NATIVE_FMA>(x + b * 32, scales[b], reciprocals[b], options, out[b],
                                                       rest == nullptr ? nullptr : rest + b * 32);
      }
    } else {
      for (int i = 0; i < end; ++i) {
        const int b = begin + i;
        magnitudes[i] = quantise_any_block(x + b * 32, largest[b], options, out[b], rest == nullptr ? nullptr : rest + b * 32);
      }
    }
    if (rest != nullptr) store_largest_of_4(magnitudes, rest_largest + begin);
  }
}

// The last `rest` < 32 floats of a source, from `begin` on, to x, and zeros after them; the floats to y unless it is null. Gives
// the magnitudes.
template <class Source>
HWY_INLINE VI load_short_block(const Source& row, int64_t begin, int64_t rest, float* x, float* y) {
  const F32 d;
  VI magnitudes = hn::Zero(I32());
  for (int i = 0; i < 32; i += kLanes) {
    VF v = hn::Zero(d);
    if (i + kLanes <= rest) {
      v = row.full(begin + i);
      if (y != nullptr) hn::StoreU(v, d, y + begin + i);
    } else if (i < rest) {
      v = row.tail(begin + i, static_cast<size_t>(rest - i));
      if (y != nullptr) store_tail(v, y + begin + i, static_cast<size_t>(rest - i));
    }
    hn::Store(v, d, x + i);
    magnitudes = hn::Max(magnitudes, magnitude_bits(v));
  }
  return magnitudes;
}

// A source of `count` floats as planes; fine may be null. The floats themselves go to y unless it is null; y may
// be what the source reads.
template <class Source>
HWY_INLINE void quantise_source(const Source& row, int64_t count, QuantiseOptions options, QuantisedBlock* coarse,
                                QuantisedBlock* fine, float* y) {
  const F32 d;
  alignas(64) float x[kGroupFloats], rest[kGroupFloats];
  alignas(64) uint32_t largest[kGroupBlocks], rest_largest[kGroupBlocks];
  const VI one = hn::Set(I32(), static_cast<int32_t>(kOneBits));
  for (int64_t begin = 0; begin < count; begin += kGroupFloats) {
    const auto blocks = static_cast<int>(count - begin < kGroupFloats ? plane_blocks(count - begin) : kGroupBlocks);
    for (int b = blocks; b < kGroupBlocks; ++b) largest[b] = rest_largest[b] = kOneBits;
    for (int four = 0; four < blocks; four += 4) {
      VI magnitudes[4] = {one, one, one, one};
      for (int b = four; b < four + 4 && b < blocks; ++b) {
        if (const int64_t left = count - begin - b * 32; left < 32) {
          magnitudes[b - four] = load_short_block(row, begin + b * 32, left, x + b * 32, y);
          continue;
        }
        VI bits = hn::Zero(I32());
        for (int i = b * 32; i < b * 32 + 32; i += kLanes) {
          const VF v = row.full(begin + i);
          hn::Store(v, d, x + i);
          if (y != nullptr) hn::StoreU(v, d, y + begin + i);
          bits = hn::Max(bits, magnitude_bits(v));
        }
        magnitudes[b - four] = bits;
      }
      store_largest_of_4(magnitudes, largest + four);
    }
    quantise_group(x, blocks, largest, options, coarse + begin / 32, fine == nullptr ? nullptr : rest, rest_largest);
    if (fine != nullptr) quantise_group(rest, blocks, rest_largest, options, fine + begin / 32, nullptr, nullptr);
  }
}

template <bool kByReciprocal>
HWY_INLINE void quantise_by(const float* x, int64_t count, float s, float r, int8_t* q) {
  const F32 d;
  const I8 d8;
  const VF scale = hn::Set(d, s), reciprocal = hn::Set(d, r);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    hn::StoreU(hn::DemoteTo(d8, rounded_quotient<kByReciprocal>(hn::LoadU(d, x + i), scale, reciprocal)), d8, q + i);
  }
  if (i < count) {
    const auto rest = static_cast<size_t>(count - i);
    alignas(64) int8_t buffer[HWY_MAX_BYTES];
    hn::StoreU(hn::DemoteTo(d8, rounded_quotient<kByReciprocal>(load_tail(x + i, rest), scale, reciprocal)), d8, buffer);
    std::memcpy(q + i, buffer, rest);
  }
}

// Blocks of a row whose scale is known: Planes::kOneScale.
inline void quantise_blocks_with_scale(const float* x, int64_t count, float scale, QuantiseOptions options, QuantisedBlock* out) {
  const float reciprocal = 1.0f / scale;
  alignas(64) float last[32] = {};
  for (const float* end = x + count; x < end; x += 32, ++out) {
    if (end - x < 32) {
      std::memcpy(last, x, (end - x) * sizeof(float));
      x = last, end = last + 32;
    }
    if (by_reciprocal(scale)) {
      quantise_block<HWY_NATIVE_FMA>(x, scale, reciprocal, options, *out, nullptr);
    } else if (scale > 0.0f) {
      quantise_block<false>(x, scale, 0.0f, options, *out, nullptr);
    } else {
      *out = QuantisedBlock{};  // zero, or not finite
      out->scale = out->sum = scale;
    }
  }
}

// A row whose scale is known: row_quant.h.
inline void quantise_with_scale(const float* x, int64_t count, float scale, int8_t* q) {
  if (!(scale > 0.0f)) {
    std::memset(q, 0, count);
    return;
  }
  const float reciprocal = 1.0f / scale;
  by_reciprocal(scale) ? quantise_by<HWY_NATIVE_FMA>(x, count, scale, reciprocal, q)
                       : quantise_by<false>(x, count, scale, reciprocal, q);
}

// Writes a source to y (unless y is null) and gives its scale.
template <class Source>
HWY_INLINE float write_row_and_scale(const Source& row, int64_t count, float* y) {
  const F32 d;
  VI largest0 = hn::Zero(I32()), largest1 = largest0;
  int64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    const VF a = row.full(i), b = row.full(i + kLanes);
    if (y != nullptr) hn::StoreU(a, d, y + i), hn::StoreU(b, d, y + i + kLanes);
    largest0 = hn::Max(largest0, magnitude_bits(a));
    largest1 = hn::Max(largest1, magnitude_bits(b));
  }
  for (; i < count; i += kLanes) {
    const bool whole = i + kLanes <= count;
    const auto rest = static_cast<size_t>(count - i);
    const VF a = whole ? row.full(i) : row.tail(i, rest);
    if (y != nullptr) whole ? hn::StoreU(a, d, y + i) : store_tail(a, y + i, rest);
    largest0 = hn::Max(largest0, magnitude_bits(a));
  }
  return scale_of(largest_of(hn::Max(largest0, largest1)));
}

}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
