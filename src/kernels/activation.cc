#include "kernels/activation.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/activation.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/activation_math_inl.h"

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {
namespace {

struct Silu {
  HWY_INLINE VF operator()(VF a) const {
    const VF one = hn::Set(F32(), 1.0f);
    return hn::Div(a, hn::Add(one, exp_full(hn::Neg(a))));
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
void gate_row_of(const float* gate, const float* up, float* y, int64_t count) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const F f;
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(hn::Mul(f(hn::LoadU(d, gate + i)), hn::LoadU(d, up + i)), d, y + i);
  if (i < count) {
    const auto rest = static_cast<size_t>(count - i);
    store_tail(hn::Mul(f(load_tail(gate + i, rest)), load_tail(up + i, rest)), y + i, rest);
  }
}

void gate_row(Activation f, const float* gate, const float* up, float* y, int64_t count) {
  switch (f) {
    case Activation::kSilu: return gate_row_of<Silu>(gate, up, y, count);
    case Activation::kGelu: return gate_row_of<Gelu>(gate, up, y, count);
    case Activation::kGeluTanh: return gate_row_of<GeluTanh>(gate, up, y, count);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "base/checked_math.h"
#include "kernels/highway_level.h"

namespace choral::kernels {
namespace {
constexpr int64_t kChunk = 2048;  // elements of one piece of work: a few µs, and a multiple of every vector
}  // namespace

void activation_and_mul(const Context& ctx, Activation f, MatrixView<const float> gate, MatrixView<const float> up,
                        MatrixView<float> y) {
  CHORAL_CHECK(gate.rows == y.rows && up.rows == y.rows && gate.cols == y.cols && up.cols == y.cols,
               "gate, up and y of a gated activation have one shape");
  const auto row = CHORAL_AT_LEVEL(ctx.level, gate_row);
  const int64_t chunks = ceil_div(y.cols, kChunk);
  ctx.pool.parallel_for(y.rows * chunks, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t t = i / chunks, col = i % chunks * kChunk;
      row(f, gate.row(t) + col, up.row(t) + col, y.row(t) + col, std::min(kChunk, y.cols - col));
    }
  });
}

void activation_and_mul(const Context& ctx, Activation f, MatrixView<const float> x, MatrixView<float> y) {
  CHORAL_CHECK(x.cols == 2 * y.cols, "x of a gated activation is twice as wide as y");
  activation_and_mul(ctx, f, x.sub_cols(0, y.cols), x.sub_cols(y.cols, y.cols), y);
}

void silu_and_mul(const Context& ctx, MatrixView<const float> x, MatrixView<float> y) {
  activation_and_mul(ctx, Activation::kSilu, x, y);
}

void gelu_and_mul(const Context& ctx, MatrixView<const float> x, MatrixView<float> y) {
  activation_and_mul(ctx, Activation::kGelu, x, y);
}

void gelu_tanh_and_mul(const Context& ctx, MatrixView<const float> x, MatrixView<float> y) {
  activation_and_mul(ctx, Activation::kGeluTanh, x, y);
}

}  // namespace choral::kernels
#endif  // HWY_ONCE
