// Vectors of 16-bit floats for the LoRA kernels: exact widening, bit for bit what base/float16.h does, at every Highway target.
// Included once per target (no include guard in the usual sense).
#if defined(CHORAL_LORA_FLOAT_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CHORAL_LORA_FLOAT_INL
#undef CHORAL_LORA_FLOAT_INL
#else
#define CHORAL_LORA_FLOAT_INL
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using I32 = hn::RebindToSigned<F32>;
using U32 = hn::RebindToUnsigned<F32>;
using U16 = hn::Rebind<uint16_t, F32>;
using I8 = hn::Rebind<int8_t, F32>;
using VF = hn::Vec<F32>;
using VU = hn::Vec<U32>;

// All bits of the lanes where a > b; both below 2^31.
HWY_INLINE hn::Vec<I32> above(VU a, uint32_t b) {
  const I32 d;
  return hn::VecFromMask(d, hn::Gt(hn::BitCast(d, a), hn::Set(d, static_cast<int32_t>(b))));
}

HWY_INLINE VF widen_bf16(hn::Vec<U16> bits) { return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(U32(), bits))); }

// Highway's own form without F16C forgets infinities and NaN.
HWY_INLINE VF widen_f16(hn::Vec<U16> bits) {
#if HWY_TARGET <= HWY_AVX2  // F16C
  return hn::PromoteTo(F32(), hn::BitCast(hn::Rebind<hwy::float16_t, F32>(), bits));
#else
  const U32 d;
  const VU wide = hn::PromoteTo(d, bits);
  const VU magnitude = hn::And(wide, hn::Set(d, 0x7FFFu));
  const VF value = hn::Mul(hn::BitCast(F32(), hn::ShiftLeft<13>(magnitude)), hn::Set(F32(), 0x1p112F));  // exact
  const VU infinite = hn::And(hn::BitCast(d, above(magnitude, 0x7BFFu)), hn::Set(d, 0x7F800000u));
  const VU sign = hn::ShiftLeft<16>(hn::AndNot(hn::Set(d, 0x7FFFu), wide));
  return hn::BitCast(F32(), hn::Or(hn::Or(hn::BitCast(d, value), infinite), sign));
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#endif  // target toggle
