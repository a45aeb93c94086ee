// How the LoRA kernels read each type that A and B are packed in, as vectors of floats, and the one order in which a vector's
// lanes are summed. Included once per Highway target (no include guard in the usual sense).
#if defined(CHORAL_LORA_STORE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CHORAL_LORA_STORE_INL
#undef CHORAL_LORA_STORE_INL
#else
#define CHORAL_LORA_STORE_INL
#endif

#include <type_traits>

#include "kernels/lora/lora_float_inl.h"
#include "kernels/lora/lora_micro.h"

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {

// A type's pairs: lanes [o, o + kLanes) of the first and the second row of 16; `single` is a row without partner.
struct StoreF32 {
  static constexpr LoRAStore kStore = LoRAStore::kF32;
  static HWY_INLINE VF first(const std::byte* p, int o) { return hn::LoadU(F32(), reinterpret_cast<const float*>(p) + o); }
  static HWY_INLINE VF second(const std::byte* p, int o) { return first(p, o + 16); }
  static HWY_INLINE VF single(const std::byte* p, int o) { return first(p, o); }
};
struct StoreF16 {
  static constexpr LoRAStore kStore = LoRAStore::kF16;
  static HWY_INLINE VF first(const std::byte* p, int o) {
    return widen_f16(hn::LoadU(U16(), reinterpret_cast<const uint16_t*>(p) + o));
  }
  static HWY_INLINE VF second(const std::byte* p, int o) { return first(p, o + 16); }
  static HWY_INLINE VF single(const std::byte* p, int o) { return first(p, o); }
};
struct StoreBF16 {
  static constexpr LoRAStore kStore = LoRAStore::kBF16;
  static HWY_INLINE hn::Vec<U32> words(const std::byte* p, int o) {
    return hn::LoadU(U32(), reinterpret_cast<const uint32_t*>(p) + o);
  }
  static HWY_INLINE VF first(const std::byte* p, int o) { return hn::BitCast(F32(), hn::ShiftLeft<16>(words(p, o))); }
  static HWY_INLINE VF second(const std::byte* p, int o) {
    return hn::BitCast(F32(), hn::And(words(p, o), hn::Set(U32(), 0xFFFF0000u)));
  }
  static HWY_INLINE VF single(const std::byte* p, int o) {
    return widen_bf16(hn::LoadU(U16(), reinterpret_cast<const uint16_t*>(p) + o));
  }
};
struct StoreI8 {
  static constexpr LoRAStore kStore = LoRAStore::kI8;
  static HWY_INLINE VF first(const std::byte* p, int o) {
    return hn::ConvertTo(F32(), hn::PromoteTo(I32(), hn::LoadU(I8(), reinterpret_cast<const int8_t*>(p) + o)));
  }
  static HWY_INLINE VF second(const std::byte* p, int o) { return first(p, o + 16); }
  static HWY_INLINE VF single(const std::byte* p, int o) { return first(p, o); }
};

// A chunk of A. The scale has 11 significant bits and a value 7, so their product is exact: the bits are those of floats.
struct StoreQ8 {
  static constexpr LoRAStore kStore = LoRAStore::kQ8;
  static HWY_INLINE VF scale(const std::byte* p) { return hn::Set(F32(), *reinterpret_cast<const float*>(p)); }
  static HWY_INLINE VF first(const std::byte* p, int o) { return hn::Mul(scale(p), StoreI8::first(p + sizeof(float), o)); }
  static HWY_INLINE VF second(const std::byte* p, int o) { return hn::Mul(scale(p), StoreI8::second(p + sizeof(float), o)); }
};
// The values of a panel of B.
template <class Store>
using PanelValues = std::conditional_t<Store::kStore == LoRAStore::kQ8, StoreI8, Store>;

// out[i] = scale[i] · the sum of vector i's lanes: ((l0 + l2) + (l1 + l3)) of every block of four, then blocks 0 + 2 and 1 + 3,
// then the two.
HWY_INLINE void sum_four(VF a, VF b, VF c, VF e, const float* scale, float* out) {
#if HWY_TARGET == HWY_SCALAR
  const VF all[4] = {a, b, c, e};
  for (int i = 0; i < 4; ++i) out[i] = hn::GetLane(all[i]) * scale[i];
#else
  const F32 d;
  const VF ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));  // a02 b02 a13 b13
  const VF ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const hn::Repartition<uint64_t, F32> d64;
  const auto lower = hn::InterleaveLower(d64, hn::BitCast(d64, ab), hn::BitCast(d64, ce));
  const auto upper = hn::InterleaveUpper(d64, hn::BitCast(d64, ab), hn::BitCast(d64, ce));
  const VF blocks = hn::Add(hn::BitCast(d, lower), hn::BitCast(d, upper));
  const hn::CappedTag<float, 4> d4;
#if HWY_TARGET <= HWY_AVX3
  const hn::Half<F32> d8;
  const auto pair = hn::Add(hn::LowerHalf(d8, blocks), hn::UpperHalf(d8, blocks));
  const auto sums = hn::Add(hn::LowerHalf(d4, pair), hn::UpperHalf(d4, pair));
#elif HWY_TARGET <= HWY_AVX2
  const auto sums = hn::Add(hn::LowerHalf(d4, blocks), hn::UpperHalf(d4, blocks));
#else
  const auto sums = blocks;
#endif
  hn::StoreU(hn::Mul(sums, hn::LoadU(d4, scale)), d4, out);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
