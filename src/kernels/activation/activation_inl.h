// The gated activations on vectors, shared by activation.cc and the fused kernels so that all of them give the same bits.
// Included once per Highway target (no include guard in the usual sense). GatedRow is a source: row_source_inl.h.
#if defined(CHORAL_ACTIVATION_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CHORAL_ACTIVATION_INL
#undef CHORAL_ACTIVATION_INL
#else
#define CHORAL_ACTIVATION_INL
#endif

#include <hwy/highway.h>

#include "kernels/row_source_inl.h"

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {

struct Silu {
  HWY_INLINE VF operator()(VF a) const {
    const VF one = hn::Set(F32(), 1.0f);
    return hn::Div(a, hn::Add(one, exp_full(hn::Neg(a))));
  }
};

struct Sigmoid {
  HWY_INLINE VF operator()(VF a) const {
    const VF one = hn::Set(F32(), 1.0f);
    return hn::Div(one, hn::Add(one, exp_full(hn::Neg(a))));
  }
};

struct GeluTanh {
  HWY_INLINE VF operator()(VF a) const {
    const F32 d;
    const VF cubic = hn::MulAdd(hn::Mul(hn::Mul(a, a), hn::Set(d, 0.044715f)), a, a);
    const VF minus_2u = hn::Mul(cubic, hn::Set(d, -1.5957691216f));  // −2·√(2/π)
    return hn::Div(a, hn::Add(hn::Set(d, 1.0f), exp_full(minus_2u)));
  }
};

struct Gelu {
  HWY_INLINE VF operator()(VF a) const {
    const F32 d;
    const VF tail = half_erfc_positive(hn::Mul(hn::Abs(a), hn::Set(d, 0.70710678f)));
    const VF phi = hn::IfThenElse(hn::Lt(a, hn::Zero(d)), tail, hn::Sub(hn::Set(d, 1.0f), tail));
    return hn::Mul(a, phi);
  }
};

template <class F>
struct GatedRow {
  const float* gate;
  const float* up;
  HWY_INLINE VF full(int64_t i) const { return hn::Mul(F()(hn::LoadU(F32(), gate + i)), hn::LoadU(F32(), up + i)); }
  HWY_INLINE VF tail(int64_t i, size_t rest) const { return hn::Mul(F()(load_tail(gate + i, rest)), load_tail(up + i, rest)); }
};

// Of a row of gates and ups in turns.
struct ClampedSwigluRow {
  const float* x;
  float alpha, limit;
  HWY_INLINE VF value(VF gate, VF up) const {
    const F32 d;
    const VF one = hn::Set(d, 1.0f), most = hn::Set(d, limit), least = hn::Neg(most);
    gate = hn::IfThenElse(hn::Gt(gate, most), most, gate);
    up = hn::IfThenElse(hn::Gt(up, most), most, hn::IfThenElse(hn::Lt(up, least), least, up));
    const VF weighted = hn::Div(gate, hn::Add(one, exp_full(hn::Mul(gate, hn::Set(d, -alpha)))));
    return hn::Mul(hn::Add(up, one), weighted);
  }
  HWY_INLINE VF full(int64_t i) const {
    VF gate, up;
    hn::LoadInterleaved2(F32(), x + 2 * i, gate, up);
    return value(gate, up);
  }
  HWY_INLINE VF tail(int64_t i, size_t rest) const {
    alignas(64) float pairs[2 * HWY_MAX_BYTES / sizeof(float)] = {};
    std::memcpy(pairs, x + 2 * i, 2 * rest * sizeof(float));
    VF gate, up;
    hn::LoadInterleaved2(F32(), pairs, gate, up);
    return value(gate, up);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
