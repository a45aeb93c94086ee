// Vector e^x, tanh and erfc for the kernels of this folder, and loads and stores of a row's tail.
// Included once per Highway target (no include guard in the usual sense). NaN stays NaN in all of them, which is why there is no
// clamping by Min/Max. Errors are in units in the last place of float; polynomials are minimax fits, the largest error is beside
// each.
#if defined(CHORAL_ACTIVATION_MATH_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CHORAL_ACTIVATION_MATH_INL
#undef CHORAL_ACTIVATION_MATH_INL
#else
#define CHORAL_ACTIVATION_MATH_INL
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using I32 = hn::RebindToSigned<F32>;
using VF = hn::Vec<F32>;
using VI = hn::Vec<I32>;

// The first `count` < Lanes elements, the rest 0. A vector load past the end of a row could touch memory that is not ours.
HWY_INLINE VF load_tail(const float* p, size_t count) {
  const F32 d;
  alignas(64) float buffer[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(buffer, p, count * sizeof(float));
  return hn::Load(d, buffer);
}

HWY_INLINE void store_tail(VF v, float* p, size_t count) {
  const F32 d;
  alignas(64) float buffer[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(v, d, buffer);
  std::memcpy(p, buffer, count * sizeof(float));
}

// 2^n for -126 <= n <= 127.
HWY_INLINE VF power_of_two(VI n) {
  const F32 d;
  const I32 di;
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
}

// x = n·ln 2 + r with |r| <= 0.35, n as float; returns e^r (relative error 8e-9 before rounding).
HWY_INLINE VF exp_of_rest(VF x, VF n) {
  const F32 d;
  VF r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);  // 9 bits: the product is exact without FMA too
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  VF p = hn::Set(d, 0.001392625083f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.008363232884f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.04166655421f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.1666657667f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  return hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0f));
}

HWY_INLINE VF per_ln2(VF x) { return hn::Mul(x, hn::Set(F32(), 1.44269504f)); }

// e^x over the whole range, subnormal results included; e^0 = 1 exactly. At most 2 ulp.
HWY_INLINE VF exp_full(VF x) {
  const F32 d;
  const VI n = hn::NearestInt(per_ln2(x));
  const VF p = exp_of_rest(x, hn::ConvertTo(d, n));
  const VI half = hn::ShiftRight<1>(n);  // two steps: 2^n itself may be out of range
  VF y = hn::Mul(hn::Mul(p, power_of_two(half)), power_of_two(hn::Sub(n, half)));
  y = hn::IfThenElse(hn::Gt(x, hn::Set(d, 88.8f)), hn::Set(d, std::numeric_limits<float>::infinity()), y);
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -104.0f)), y);
}

// e^x for x <= 0, results below the normal range are 0; e^0 = 1 exactly, e^-inf = 0. For softmax.
HWY_INLINE VF exp_negative(VF x) {
  const F32 d;
  const I32 di;
  // Added to 1.5 · 2^23, x / ln 2 is rounded to n, which then lies in the lowest bits: less work than NearestInt, whose overflow
  // is put right. Below -87.3 both may be anything.
  const VF magic = hn::Set(d, 0x1.8p23f);
  const VF shifted = hn::Add(per_ln2(x), magic);
  const VF power = hn::BitCast(d, hn::Add(hn::ShiftLeft<23>(hn::BitCast(di, shifted)), hn::BitCast(di, hn::Set(d, 1.0f))));
  const VF p = exp_of_rest(x, hn::Sub(shifted, magic));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.3f)), hn::Mul(p, power));
}

// tanh: an odd polynomial below 0.625 (2e-8 of the cubic term), 1 - 2/(e^2|x| + 1) above.
HWY_INLINE VF tanh_full(VF x) {
  const F32 d;
  const VF a = hn::Abs(x);
  const VF z = hn::Mul(x, x);
  VF p = hn::Set(d, -0.006045165097f);
  p = hn::MulAdd(p, z, hn::Set(d, 0.02096132911f));
  p = hn::MulAdd(p, z, hn::Set(d, -0.05384326318f));
  p = hn::MulAdd(p, z, hn::Set(d, 0.1333271885f));
  p = hn::MulAdd(p, z, hn::Set(d, -0.3333332843f));
  const VF small = hn::MulAdd(hn::Mul(p, z), x, x);
  const VF one = hn::Set(d, 1.0f);
  const VF e = exp_full(hn::Add(a, a));
  const VF large = hn::CopySign(hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(e, one))), x);
  return hn::IfThenElse(hn::Lt(a, hn::Set(d, 0.625f)), small, large);
}

// erfc(z)/2 for z >= 0: e^-z² · t · P(t), t = 2/(2 + z). The rounding error of z² is put back where there is an FMA.
HWY_INLINE VF half_erfc_positive(VF z) {
  const F32 d;
  z = hn::IfThenElse(hn::Gt(z, hn::Set(d, 20.0f)), hn::Set(d, 20.0f), z);  // 0 from there on, and z² stays finite
  const VF t = hn::Div(hn::Set(d, 2.0f), hn::Add(z, hn::Set(d, 2.0f)));
  VF p = hn::Set(d, 0.03505510005f);
  p = hn::MulAdd(p, t, hn::Set(d, -0.1875216726f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.3742375578f));
  p = hn::MulAdd(p, t, hn::Set(d, -0.2818922554f));
  p = hn::MulAdd(p, t, hn::Set(d, -0.02627187742f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.03616486012f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.05540050377f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.185214281f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.2452863065f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.282237906f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.2820892925f));
  const VF square = hn::Mul(z, z);
  const VF lost = hn::MulSub(z, z, square);  // exact with FMA, 0 without
  VF e = exp_full(hn::Neg(square));
  e = hn::NegMulAdd(e, lost, e);
  return hn::Mul(hn::Mul(hn::Mul(e, t), p), hn::Set(d, 0.5f));
}

}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
