#include "kernels/rms_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rms_norm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "kernels/activation_math_inl.h"

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {
namespace {

// Σ x² in four chains of vectors: element i goes to chain (i / lanes) % 4, whatever the caller; a row's tail counts as a whole
// vector.
float sum_of_squares(const float* x, int64_t count) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  VF s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const VF a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + lanes);
    const VF c = hn::LoadU(d, x + i + 2 * lanes), e = hn::LoadU(d, x + i + 3 * lanes);
    s0 = hn::MulAdd(a, a, s0);
    s1 = hn::MulAdd(b, b, s1);
    s2 = hn::MulAdd(c, c, s2);
    s3 = hn::MulAdd(e, e, s3);
  }
  for (; i < count; i += lanes) {
    const VF a = i + lanes <= count ? hn::LoadU(d, x + i) : load_tail(x + i, static_cast<size_t>(count - i));
    const VF sum = hn::MulAdd(a, a, s0);  // chains take turns
    s0 = s1, s1 = s2, s2 = s3, s3 = sum;
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

void norm_row(const float* x, const float* w, float eps, NormWeight form, float* y, int64_t count) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const float mean = sum_of_squares(x, count) / static_cast<float>(count);
  const VF factor = hn::Set(d, 1.0f / std::sqrt(mean + eps));
  const VF weight_offset = hn::Set(d, form == NormWeight::kOnePlus ? 1.0f : 0.0f);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const VF weight = hn::Add(hn::LoadU(d, w + i), weight_offset);
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, x + i), factor), weight), d, y + i);
  }
  if (i < count) {
    const auto rest = static_cast<size_t>(count - i);
    const VF weight = hn::Add(load_tail(w + i, rest), weight_offset);
    store_tail(hn::Mul(hn::Mul(load_tail(x + i, rest), factor), weight), y + i, rest);
  }
}

void add_row(const float* x, float* residual, int64_t count) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(hn::Add(hn::LoadU(d, residual + i), hn::LoadU(d, x + i)), d, residual + i);
  for (; i < count; ++i) residual[i] += x[i];  // one addition: the same in any lane
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "kernels/highway_level.h"

namespace choral::kernels {
namespace {
// Rows of one piece of work: about 16 KiB, so that a single decode row costs no synchronisation and a prefill spreads.
int64_t rows_per_chunk(int64_t cols) { return std::max<int64_t>(1, 4096 / std::max<int64_t>(cols, 1)); }
}  // namespace

void rms_norm(const Context& ctx, MatrixView<const float> x, std::span<const float> w, float eps, MatrixView<float> y,
              NormWeight form) {
  CHORAL_CHECK(x.rows == y.rows && x.cols == y.cols && static_cast<int64_t>(w.size()) == x.cols, "x, y and w of a norm fit");
  const auto norm = CHORAL_AT_LEVEL(ctx.level, norm_row);
  ctx.pool.parallel_for(x.rows, rows_per_chunk(x.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) norm(x.row(i), w.data(), eps, form, y.row(i), x.cols);
  });
}

void add_rms_norm(const Context& ctx, MatrixView<const float> x, MatrixView<float> residual, std::span<const float> w, float eps,
                  MatrixView<float> y, NormWeight form) {
  CHORAL_CHECK(x.rows == y.rows && x.cols == y.cols && residual.rows == x.rows && residual.cols == x.cols &&
                   static_cast<int64_t>(w.size()) == x.cols,
               "x, residual, y and w of a norm fit");
  const auto add = CHORAL_AT_LEVEL(ctx.level, add_row);
  const auto norm = CHORAL_AT_LEVEL(ctx.level, norm_row);
  ctx.pool.parallel_for(x.rows, rows_per_chunk(x.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      add(x.row(i), residual.row(i), x.cols);
      norm(residual.row(i), w.data(), eps, form, y.row(i), x.cols);
    }
  });
}

void rms_norm_heads(const Context& ctx, MatrixView<float> x, int64_t heads, std::span<const float> w, float eps,
                    NormWeight form) {
  const auto head_dim = static_cast<int64_t>(w.size());
  CHORAL_CHECK(x.cols == heads * head_dim, "heads and w of a head norm fit x");
  const auto norm = CHORAL_AT_LEVEL(ctx.level, norm_row);
  ctx.pool.parallel_for(x.rows, rows_per_chunk(x.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t h = 0; h < heads; ++h) {
        float* head = x.row(i) + h * head_dim;
        norm(head, w.data(), eps, form, head, head_dim);
      }
    }
  });
}

}  // namespace choral::kernels
#endif  // HWY_ONCE
