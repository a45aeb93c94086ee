#include "kernels/fused/swiglu_quant.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fused/swiglu_quant.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/activation/activation_inl.h"
#include "kernels/quant/quantise_inl.h"

namespace choral::kernels {
#ifndef CHORAL_SWIGLU_ROW
#define CHORAL_SWIGLU_ROW
namespace {
// One row of an Int8Product: its halves in the order silu's, the other's.
struct ProductRow {
  const int32_t* sums[2];
  const float* weight_scale[2];
  float row_scale;
  const float* smooth;  // or null
  float* unsmoothed;    // where y is wanted, or null
};
}  // namespace
#endif
}  // namespace choral::kernels

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

struct DequantisedGatedRow {
  const ProductRow& row;
  VF row_scale;

  HWY_INLINE VF full(int64_t i) const {
    const F32 d;
    const VF gated = gate(dequantised(0, i), dequantised(1, i));
    if (row.unsmoothed != nullptr) hn::StoreU(gated, d, row.unsmoothed + i);
    return row.smooth == nullptr ? gated : hn::Mul(gated, hn::LoadU(d, row.smooth + i));
  }
  HWY_INLINE VF tail(int64_t i, size_t rest) const {
    const VF gated = gate(dequantised_tail(0, i, rest), dequantised_tail(1, i, rest));
    if (row.unsmoothed != nullptr) store_tail(gated, row.unsmoothed + i, rest);
    return row.smooth == nullptr ? gated : hn::Mul(gated, load_tail(row.smooth + i, rest));
  }

 private:
  HWY_INLINE VF gate(VF a, VF b) const { return hn::Mul(Silu()(a), b); }
  HWY_INLINE VF dequantised(int half, int64_t i) const {
    const VF sums = hn::ConvertTo(F32(), hn::LoadU(I32(), row.sums[half] + i));
    return hn::Mul(hn::Mul(sums, hn::LoadU(F32(), row.weight_scale[half] + i)), row_scale);
  }
  HWY_INLINE VF dequantised_tail(int half, int64_t i, size_t rest) const {
    alignas(64) int32_t buffer[HWY_MAX_BYTES / sizeof(int32_t)] = {};
    std::memcpy(buffer, row.sums[half] + i, rest * sizeof(int32_t));
    const VF sums = hn::ConvertTo(F32(), hn::Load(I32(), buffer));
    // A row scale that is not finite would make NaN of the zeros beyond the row; it makes the row's scale NaN in any case.
    return hn::Mul(hn::Mul(sums, load_tail(row.weight_scale[half] + i, rest)), row_scale);
  }
};

float dequantised_floats(const ProductRow& row, int64_t count, float* y) {
  return write_row_and_scale(DequantisedGatedRow{row, hn::Set(F32(), row.row_scale)}, count, y);
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

void dequant_swiglu_quant(const Context& ctx, const Int8Product& product, SiluHalf half, MatrixView<const float> smooth,
                          const RowGroups* groups, MatrixView<int8_t> q, std::span<float> scale, MatrixView<float> y) {
  const int64_t rows = product.sums.rows, n = product.sums.cols / 2;
  const int64_t group_count = groups == nullptr ? 1 : groups->size();
  const auto per_group = [&](MatrixView<const float> m, int64_t cols) {
    return m.cols == cols && (m.rows == 1 || m.rows == group_count);
  };
  CHORAL_CHECK(product.sums.cols % 2 == 0 && q.rows == rows && q.cols == n && std::ssize(scale) == rows &&
                   std::ssize(product.row_scale) == rows && per_group(product.weight_scale, 2 * n) &&
                   (!wanted(y) || (y.rows == rows && y.cols == n)),
               "an int8 product, its scales, q and y fit");
  CHORAL_CHECK(smooth.data == nullptr || per_group(smooth, n), "smooth is one row of y, or one for each group");
  CHORAL_CHECK(groups == nullptr || groups->covers(rows), "the groups' rows are those of the product");
  const auto dequantised = CHORAL_AT_LEVEL(ctx.level, dequantised_floats);
  const int64_t left = half == SiluHalf::kLeft ? 0 : n, right = n - left;
  const auto write = [&](int64_t t, int64_t col, int64_t count, float* floats) {
    const int64_t g = groups == nullptr ? 0 : groups->group_of(t);
    const int32_t* sums = product.sums.row(t) + col;
    const float* weight_scale = product.weight_scale.row(product.weight_scale.rows == 1 ? 0 : g) + col;
    const ProductRow row{.sums = {sums + left, sums + right},
                         .weight_scale = {weight_scale + left, weight_scale + right},
                         .row_scale = product.row_scale[t],
                         .smooth = smooth.data == nullptr ? nullptr : smooth.row(smooth.rows == 1 ? 0 : g) + col,
                         .unsmoothed = wanted(y) ? y.row(t) + col : nullptr};
    return dequantised(row, count, floats);
  };
  quantise_written(ctx, write, {}, q, scale);
}

}  // namespace choral::kernels
#endif  // HWY_ONCE
