#include "kernels/fused/swiglu_quant.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fused/swiglu_quant.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/activation/activation_inl.h"
#include "kernels/quant/quantise_inl.h"

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {
namespace {

void gated_planes(const float* gate, const float* up, int64_t count, QuantiseOptions options, QuantisedBlock* coarse,
                  QuantisedBlock* fine, float* y) {
  quantise_source(GatedRow<Silu>{gate, up}, count, options, coarse, fine, y);
}

float gated_floats(const float* gate, const float* up, int64_t count, float* y) {
  return write_row_and_scale(GatedRow<Silu>{gate, up}, count, y);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "base/checked_math.h"
#include "kernels/activation/activation.h"
#include "kernels/highway_level.h"
#include "kernels/task_size.h"

namespace choral::kernels {
namespace {

bool wanted(MatrixView<float> y) { return y.data != nullptr; }

// Writes a piece of a row of floats and gives the scale that the piece alone would have.
using WritePiece = FunctionRef<float(int64_t row, int64_t col, int64_t count, float* floats)>;
// Quantises a piece of a row whose scale is known.
using StorePiece = FunctionRef<void(int64_t row, int64_t col, int64_t count, const float* floats, float scale)>;

// Stores rows [rows, n] that `write` makes, and their scales. Fewer rows than threads are divided by columns: division by 127
// keeps order, so the largest scale of a row's pieces is the row's, and the bits are the same.
void quantise_written(const Context& ctx, WritePiece write, StorePiece store, MatrixView<float> y, int64_t n,
                      std::span<float> scale) {
  const Arena::Mark mark(ctx.scratch);
  const int64_t rows = std::ssize(scale), chunks = ceil_div(n, kHeavyTask);
  if (rows >= ctx.pool.size() || chunks <= 1) {
    const auto scratch = ctx.scratch.make<float>(wanted(y) ? 0 : ctx.pool.size() * n);
    ctx.pool.parallel_for(rows, pieces_per_task(kHeavyTask, n), [&](int64_t begin, int64_t end, int thread) {
      for (int64_t t = begin; t < end; ++t) {
        float* floats = wanted(y) ? y.row(t) : scratch.data() + thread * n;
        scale[t] = write(t, 0, n, floats);
        store(t, 0, n, floats, scale[t]);
      }
    });
    return;
  }
  if (!wanted(y)) y = {ctx.scratch.make<float>(rows * n).data(), rows, n};
  const auto scales = ctx.scratch.make<float>(rows * chunks);
  const auto for_each_piece = [&](auto piece) {
    ctx.pool.parallel_for(rows * chunks, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t col = i % chunks * kHeavyTask;
        piece(i / chunks, col, std::min(kHeavyTask, n - col), i);
      }
    });
  };
  for_each_piece([&](int64_t t, int64_t col, int64_t count, int64_t i) { scales[i] = write(t, col, count, y.row(t) + col); });
  for (int64_t t = 0; t < rows; ++t) {
    scale[t] = 0.0f;
    for (const float s : scales.subspan(t * chunks, chunks)) {
      if (s > scale[t] || s != s) scale[t] = s;  // a NaN replaces anything, and nothing is larger than it
    }
  }
  for_each_piece([&](int64_t t, int64_t col, int64_t count, int64_t) { store(t, col, count, y.row(t) + col, scale[t]); });
}

void quantise_written(const Context& ctx, WritePiece write, MatrixView<float> y, MatrixView<int8_t> q, std::span<float> scale) {
  const auto quantise = CHORAL_AT_LEVEL(ctx.level, quantise_with_scale);
  const auto store = [&](int64_t t, int64_t col, int64_t count, const float* floats, float s) {
    quantise(floats, count, s, q.row(t) + col);
  };
  quantise_written(ctx, write, store, y, q.cols, scale);
}

// Blocks as quantise_planes orders them, with a scale for each.
void write_planes(const Context& ctx, MatrixView<const float> x, QuantiseOptions options, QuantisedBlock* out,
                  MatrixView<float> y) {
  const auto gated = CHORAL_AT_LEVEL(ctx.level, gated_planes);
  const int64_t n = x.cols / 2, chunks = ceil_div(n, kHeavyTask), planes = plane_count(options.planes);
  ctx.pool.parallel_for(x.rows * chunks, pieces_per_task(kHeavyTask, n), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t t = i / chunks, col = i % chunks * kHeavyTask;
      const float* gate = x.row(t) + col;
      QuantisedBlock* coarse = out + planes * t * plane_blocks(n) + col / 32;
      gated(gate, gate + n, std::min(kHeavyTask, n - col), options, coarse, planes == 2 ? coarse + plane_blocks(n) : nullptr,
            wanted(y) ? y.row(t) + col : nullptr);
    }
  });
}

}  // namespace

void silu_and_mul_quantise(const Context& ctx, MatrixView<const float> x, const QuantisedRows& out, MatrixView<float> y) {
  const int64_t n = x.cols / 2;
  CHORAL_CHECK(x.cols % 2 == 0 && out.rows() == x.rows && out.k() == n && (!wanted(y) || (y.rows == x.rows && y.cols == n)),
               "x of a gated activation is twice as wide as y and its quantised rows");
  const auto gated = CHORAL_AT_LEVEL(ctx.level, gated_floats);
  const auto write = [&](int64_t t, int64_t col, int64_t count, float* floats) {
    return gated(x.row(t) + col, x.row(t) + n + col, count, floats);
  };
  const Arena::Mark mark(ctx.scratch);
  switch (out.form().kind) {
    case RowForm::Kind::kPlanes: {
      const QuantiseOptions options = out.form().planes;
      QuantisedBlock* blocks = out.planes().data();
      if (options.planes != Planes::kOneScale) return write_planes(ctx, x, options, blocks, y);
      const auto quantise = CHORAL_AT_LEVEL(ctx.level, quantise_blocks_with_scale);
      const auto store = [&](int64_t t, int64_t col, int64_t count, const float* floats, float scale) {
        quantise(floats, count, scale, options, blocks + t * plane_blocks(n) + col / 32);
      };
      return quantise_written(ctx, write, store, y, n, ctx.scratch.make<float>(x.rows));
    }
    case RowForm::Kind::kInt8: {
      if (out.form().int8.fixed) {  // as in norm_quant.cc
        if (!wanted(y)) y = {ctx.scratch.make<float>(x.rows * n).data(), x.rows, n};
        silu_and_mul(ctx, x, y);
        return quantise_rows(ctx, y, out);
      }
      return quantise_written(ctx, write, y, out.q(), out.scale());
    }
  }
}

}  // namespace choral::kernels
#endif  // HWY_ONCE
