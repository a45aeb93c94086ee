// What a token does to a block of a head's state (head_states.h), on vectors of its value columns: shared by the kernels that
// keep one. Each element of Sᵀx is four chains of multiply-adds, which take turns over the keys and are added in pairs.
// Included once per Highway target (no include guard in the usual sense).
#if defined(CHORAL_HEAD_STATES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CHORAL_HEAD_STATES_INL
#undef CHORAL_HEAD_STATES_INL
#else
#define CHORAL_HEAD_STATES_INL
#endif

#include <hwy/highway.h>

#include "kernels/row_source_inl.h"

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {

// Two vectors side by side, which share what is read of a row's key.
struct TwoVF {
  VF a, b;
};
HWY_INLINE VF plus(VF x, VF y) { return hn::Add(x, y); }
HWY_INLINE VF minus(VF x, VF y) { return hn::Sub(x, y); }
HWY_INLINE VF times(VF factor, VF x) { return hn::Mul(factor, x); }
HWY_INLINE VF times_plus(VF factor, VF x, VF y) { return hn::MulAdd(factor, x, y); }
HWY_INLINE TwoVF plus(TwoVF x, TwoVF y) { return {hn::Add(x.a, y.a), hn::Add(x.b, y.b)}; }
HWY_INLINE TwoVF minus(TwoVF x, TwoVF y) { return {hn::Sub(x.a, y.a), hn::Sub(x.b, y.b)}; }
HWY_INLINE TwoVF times(VF factor, TwoVF x) { return {hn::Mul(factor, x.a), hn::Mul(factor, x.b)}; }
HWY_INLINE TwoVF times_plus(VF factor, TwoVF x, TwoVF y) { return {hn::MulAdd(factor, x.a, y.a), hn::MulAdd(factor, x.b, y.b)}; }

// How columns are read and written: two vectors of them, one, or a part of one.
struct TwoVectors {
  using Value = TwoVF;
  HWY_INLINE Value zero() const { return {hn::Zero(F32()), hn::Zero(F32())}; }
  HWY_INLINE Value load(const float* p) const { return {hn::LoadU(F32(), p), hn::LoadU(F32(), p + hn::Lanes(F32()))}; }
  HWY_INLINE void store(Value v, float* p) const {
    hn::StoreU(v.a, F32(), p);
    hn::StoreU(v.b, F32(), p + hn::Lanes(F32()));
  }
};
struct WholeVector {
  using Value = VF;
  HWY_INLINE Value zero() const { return hn::Zero(F32()); }
  HWY_INLINE Value load(const float* p) const { return hn::LoadU(F32(), p); }
  HWY_INLINE void store(Value v, float* p) const { hn::StoreU(v, F32(), p); }
};
struct PartOfVector {
  using Value = VF;
  size_t count;
  HWY_INLINE Value zero() const { return hn::Zero(F32()); }
  HWY_INLINE Value load(const float* p) const { return load_tail(p, count); }
  HWY_INLINE void store(Value v, float* p) const { store_tail(v, p, count); }
};

// Σ x[k] · rows(k), where rows(k) gives columns of the state's row k and is called once for each k, in order.
template <class Rows>
HWY_INLINE auto seen_by(const float* x, int64_t key_dim, const Rows& rows) {
  const F32 f;
  auto a = rows.access.zero(), b = a, c = a, d = a;
  int64_t k = 0;
  for (; k + 4 <= key_dim; k += 4) {
    a = times_plus(hn::Set(f, x[k]), rows(k), a);
    b = times_plus(hn::Set(f, x[k + 1]), rows(k + 1), b);
    c = times_plus(hn::Set(f, x[k + 2]), rows(k + 2), c);
    d = times_plus(hn::Set(f, x[k + 3]), rows(k + 3), d);
  }
  for (; k < key_dim; ++k) {
    const auto sum = times_plus(hn::Set(f, x[k]), rows(k), a);
    a = b, b = c, c = d, d = sum;
  }
  return plus(plus(a, b), plus(c, d));
}

// Rows of some of a block's columns. state [key_dim, stride], which begins with them.
template <class Access>
struct StateRows {
  const float* state;
  int64_t stride;
  Access access;
  HWY_INLINE auto operator()(int64_t k) const { return access.load(state + k * stride); }
};

// The same of the state that follows, S = decay · S + keys · deltaᵀ, which is written on the way.
template <class Access>
struct UpdatedRows {
  float* state;
  int64_t stride;
  Access access;
  const float* keys;
  typename Access::Value delta;
  VF decay;
  HWY_INLINE auto operator()(int64_t k) const {
    float* at = state + k * stride;
    const auto next = times_plus(hn::Set(F32(), keys[k]), delta, times(decay, access.load(at)));
    access.store(next, at);
    return next;
  }
};

// run(column, access) for all of a block's columns.
template <class Run>
HWY_INLINE void for_column_vectors(int64_t columns, const Run& run) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(F32()));
  int64_t column = 0;
  for (; column + 2 * lanes <= columns; column += 2 * lanes) run(column, TwoVectors());
  for (; column + lanes <= columns; column += lanes) run(column, WholeVector());
  if (column < columns) run(column, PartOfVector{static_cast<size_t>(columns - column)});
}

}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
