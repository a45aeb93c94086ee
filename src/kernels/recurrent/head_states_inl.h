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

struct WholeVector {
  HWY_INLINE VF load(const float* p) const { return hn::LoadU(F32(), p); }
  HWY_INLINE void store(VF v, float* p) const { hn::StoreU(v, F32(), p); }
};
struct PartOfVector {
  size_t count;
  HWY_INLINE VF load(const float* p) const { return load_tail(p, count); }
  HWY_INLINE void store(VF v, float* p) const { store_tail(v, p, count); }
};

// Σ x[k] · row(k), where row(k) gives a vector of the state's row k and is called once for each k, in order.
template <class Row>
HWY_INLINE VF seen_by(const float* x, int64_t key_dim, Row row) {
  const F32 f;
  VF a = hn::Zero(f), b = a, c = a, d = a;
  int64_t k = 0;
  for (; k + 4 <= key_dim; k += 4) {
    a = hn::MulAdd(hn::Set(f, x[k]), row(k), a);
    b = hn::MulAdd(hn::Set(f, x[k + 1]), row(k + 1), b);
    c = hn::MulAdd(hn::Set(f, x[k + 2]), row(k + 2), c);
    d = hn::MulAdd(hn::Set(f, x[k + 3]), row(k + 3), d);
  }
  for (; k < key_dim; ++k) {
    const VF sum = hn::MulAdd(hn::Set(f, x[k]), row(k), a);
    a = b, b = c, c = d, d = sum;
  }
  return hn::Add(hn::Add(a, b), hn::Add(c, d));
}

// Rows of one vector of a block's columns. state [key_dim, stride], which begins with it.
template <class Access>
struct StateRows {
  const float* state;
  int64_t stride;
  Access access;
  HWY_INLINE VF operator()(int64_t k) const { return access.load(state + k * stride); }
};

// The same of the state that follows, S = decay · S + keys · deltaᵀ, which is written on the way.
template <class Access>
struct UpdatedRows {
  float* state;
  int64_t stride;
  Access access;
  const float* keys;
  VF delta, decay;
  HWY_INLINE VF operator()(int64_t k) const {
    float* at = state + k * stride;
    const VF next = hn::MulAdd(hn::Set(F32(), keys[k]), delta, hn::Mul(decay, access.load(at)));
    access.store(next, at);
    return next;
  }
};

// run(column, access) for each vector of a block's columns.
template <class Run>
HWY_INLINE void for_column_vectors(int64_t columns, const Run& run) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(F32()));
  int64_t column = 0;
  for (; column + lanes <= columns; column += lanes) run(column, WholeVector());
  if (column < columns) run(column, PartOfVector{static_cast<size_t>(columns - column)});
}

}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
