#include "kernels/fused/norm_quant.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fused/norm_quant.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/norm/rms_norm_inl.h"
#include "kernels/quant/quantise_inl.h"

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {
namespace {

NormedRow normed_row(const float* x, const NormRow& norm) { return {x, norm, sum_of_squares(LoadedRow{x}, norm.count)}; }

// y [count] is written: the row where it is wanted, else scratch.
float dynamic_quant_row(const float* x, const NormRow& norm, float* y, int8_t* q) {
  const float scale = write_row_and_scale(normed_row(x, norm), norm.count, y);
  quantise_with_scale(y, norm.count, scale, q);
  return scale;
}

// y may be null but for a scale of the whole row.
void planes_row(const float* x, const NormRow& norm, QuantiseOptions options, QuantisedBlock* out, float* y) {
  const NormedRow normed = normed_row(x, norm);
  const int64_t count = norm.count;
  if (options.planes == Planes::kOneScale) {
    return quantise_blocks_with_scale(y, count, write_row_and_scale(normed, count, y), options, out);
  }
  quantise_source(normed, count, options, out, options.planes == Planes::kTwo ? out + plane_blocks(count) : nullptr, y);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "kernels/highway_level.h"
#include "kernels/norm/norm_row.h"
#include "kernels/task_size.h"

namespace choral::kernels {

void rms_norm_quantise(const Context& ctx, MatrixView<const float> x, std::span<const float> w, float eps,
                       const QuantisedRows& out, MatrixView<float> y, std::span<const float> bias) {
  const int64_t cols = x.cols;
  const bool wanted = y.data != nullptr;
  CHORAL_CHECK(out.rows() == x.rows && out.k() == cols && (!wanted || (y.rows == x.rows && y.cols == cols)),
               "x, y and the quantised rows of a norm fit");
  const NormRow norm = norm_of_row(w, bias, eps, cols);
  const auto for_each_row = [&](auto run) {
    ctx.pool.parallel_for(x.rows, pieces_per_task(kMediumTask, cols), [&](int64_t begin, int64_t end, int thread) {
      for (int64_t i = begin; i < end; ++i) run(i, thread);
    });
  };
  const Arena::Mark mark(ctx.scratch);
  switch (out.form().kind) {
    case RowForm::Kind::kPlanes: {
      const bool needs_floats = out.form().planes.planes == Planes::kOneScale;
      const auto scratch = ctx.scratch.make<float>(needs_floats && !wanted ? ctx.pool.size() * cols : 0);
      const auto row = CHORAL_AT_LEVEL(ctx.level, planes_row);
      return for_each_row([&](int64_t i, int thread) {
        float* floats = wanted ? y.row(i) : needs_floats ? scratch.data() + thread * cols : nullptr;
        row(x.row(i), norm, out.form().planes, out.sub_rows(i, 1).planes().data(), floats);
      });
    }
    case RowForm::Kind::kInt8: {
      if (out.form().int8.fixed) {  // no scale has to be found, so there is little to gain from one pass
        if (!wanted) y = {ctx.scratch.make<float>(x.rows * cols).data(), x.rows, cols};
        rms_norm(ctx, x, w, eps, y, bias);
        return quantise_rows(ctx, y, out);
      }
      const auto scratch = ctx.scratch.make<float>(wanted ? 0 : ctx.pool.size() * cols);
      const auto row = CHORAL_AT_LEVEL(ctx.level, dynamic_quant_row);
      return for_each_row([&](int64_t i, int thread) {
        float* floats = wanted ? y.row(i) : scratch.data() + thread * cols;
        out.scale()[i] = row(x.row(i), norm, floats, out.q().row(i));
      });
    }
  }
}

}  // namespace choral::kernels
#endif  // HWY_ONCE
