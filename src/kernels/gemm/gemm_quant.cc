#include "kernels/gemm/gemm_quant.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/check.h"
#include "kernels/gemm/gemm_quant_kernel.h"
#include "kernels/gemm/tile_finish.h"

namespace choral::kernels {
namespace {

// Rows multiplied per pass over W: enough to hide the reading of W behind the arithmetic, few enough that quantised x stays near.
constexpr int64_t kRowsPerPass = 96;
constexpr int64_t kPlanes = 2;  // of a row of x: coarse and fine

class QuantisedMatrix final : public PackedMatrix {
 public:
  QuantisedMatrix(DType type, int64_t n, int64_t k, AlignedBuffer panels)
      : PackedMatrix(n, k),
        type_(type),
        form_(quant_form(type)),
        panel_bytes_(form_.panel_bytes(k / kQuantBlock)),
        panels_(std::move(panels)) {}

  int64_t size_bytes() const override { return static_cast<int64_t>(panels_.size_bytes()); }
  std::string format() const override { return std::string(dtype_name(type_)); }
  std::string kernel_name(CpuLevel level) const override {
    return fmt::format("{} x 2 int8, {}", dtype_name(type_), quant_kernel(type_, level).name);
  }
  void multiply(const Context& ctx, MatrixView<const float> x, const Epilogue& epilogue, MatrixView<float> y) const override;
  std::optional<RowForm> quantised_input(CpuLevel level) const override {
    return RowForm{.kind = RowForm::Kind::kPlanes,
                   .planes = {.zero = quant_kernel(type_, level).zero, .halves = form_.sub_blocks() == 2}};
  }
  void multiply_quantised(const Context& ctx, const QuantisedRows& x, const Epilogue& epilogue,
                          MatrixView<float> y) const override;
  Status read_row(int64_t row, std::span<float> out) const override;

 private:
  void multiply_pass(const Context& ctx, const QuantKernel& kernel, int64_t first_row, const QuantisedBlock* planes,
                     const Epilogue& epilogue, MatrixView<float> y) const;

  DType type_;
  QuantForm form_;
  int64_t panel_bytes_;
  AlignedBuffer panels_;
};

// Rows 2r and 2r + 1 of a tile are the planes of row r: their sum takes its place. Gives the tile of half as many rows.
MatrixView<float> add_planes(MatrixView<float> tile) {
  for (int64_t r = 0; r < tile.rows / kPlanes; ++r) {
    const float *coarse = tile.row(kPlanes * r), *fine = tile.row(kPlanes * r + 1);
    float* out = tile.row(r);
    for (int64_t c = 0; c < tile.cols; ++c) out[c] = coarse[c] + fine[c];
  }
  return tile.sub_rows(0, tile.rows / kPlanes);
}

void QuantisedMatrix::multiply(const Context& ctx, MatrixView<const float> x, const Epilogue& epilogue,
                               MatrixView<float> y) const {
  CHORAL_CHECK(x.cols == k() && y.cols == n() && x.rows == y.rows, "x is [m, k], y is [m, n]");
  const QuantKernel kernel = quant_kernel(type_, ctx.level);
  for (int64_t row = 0; row < x.rows; row += kRowsPerPass) {
    const int64_t count = std::min(kRowsPerPass, x.rows - row);
    const Arena::Mark mark(ctx.scratch);
    const QuantisedRows rows(ctx.scratch, *quantised_input(ctx.level), count, k());
    quantise_rows(ctx, x.sub_rows(row, count), rows);
    multiply_pass(ctx, kernel, row, rows.planes().data(), epilogue, y.sub_rows(row, count));
  }
}

void QuantisedMatrix::multiply_quantised(const Context& ctx, const QuantisedRows& x, const Epilogue& epilogue,
                                         MatrixView<float> y) const {
  CHORAL_CHECK(x.form() == quantised_input(ctx.level) && x.rows() == y.rows && x.k() == k() && y.cols == n(),
               "y is [m, n], and x has m rows of the form that was asked for");
  const QuantKernel kernel = quant_kernel(type_, ctx.level);
  for (int64_t row = 0; row < y.rows; row += kRowsPerPass) {
    const int64_t count = std::min(kRowsPerPass, y.rows - row);
    multiply_pass(ctx, kernel, row, x.sub_rows(row, count).planes().data(), epilogue, y.sub_rows(row, count));
  }
}

void QuantisedMatrix::multiply_pass(const Context& ctx, const QuantKernel& kernel, int64_t first_row,
                                    const QuantisedBlock* planes, const Epilogue& epilogue, MatrixView<float> y) const {
  const Arena::Mark mark(ctx.scratch);
  const int64_t blocks = k() / kQuantBlock, rows = kPlanes * y.rows;
  const bool few = rows <= kQuantDirectRows;
  const int64_t tile_floats = rows * kQuantTileColumns;
  const auto tiles = ctx.scratch.make<float>(ctx.pool.size() * tile_floats);
  const int64_t work_bytes = few ? 0 : kQuantWorkBytes;
  const auto work = ctx.scratch.make<std::byte>(ctx.pool.size() * work_bytes);
  const int64_t panels = ceil_div(n(), kQuantLanes);
  const int64_t quads = ceil_div(panels, kQuantPanelsAtOnce);
  // Neighbouring panels stay with one thread, which has already asked for the next ones; eight shares a thread even out the end.
  const int64_t grain = std::max<int64_t>(1, quads / (8 * ctx.pool.size()));
  ctx.pool.parallel_for(quads, grain, [&](int64_t begin, int64_t end, int thread) {
    float* tile = tiles.data() + thread * tile_floats;
    for (int64_t t = begin; t < end; ++t) {
      const int64_t panel = t * kQuantPanelsAtOnce, col = panel * kQuantLanes;
      const QuantKernelArgs args{
          .panels = panels_.data() + panel * panel_bytes_,
          .panel_bytes = panel_bytes_,
          .panel_count = static_cast<int>(std::min<int64_t>(kQuantPanelsAtOnce, panels - panel)),
          .x = planes,
          .blocks = blocks,
          .rows = rows,
          .out = tile,
          .work = work.data() + thread * work_bytes,
      };
      (few ? kernel.direct : kernel.tiled)(args);
      const int64_t cols = std::min<int64_t>(kQuantTileColumns, n() - col);
      finish_tile(add_planes(MatrixView<float>(tile, rows, cols, kQuantTileColumns)), first_row, col, epilogue, y);
    }
  });
}

Status QuantisedMatrix::read_row(int64_t row, std::span<float> out) const {
  CHORAL_CHECK(row >= 0 && row < n() && std::ssize(out) == k(), "a row of W has k elements");
  const std::byte* panel = panels_.data() + row / kQuantLanes * panel_bytes_;
  const int width = kQuantBlock / form_.sub_blocks(), zero = form_.zero();
  for (int64_t b = 0; b < k() / kQuantBlock; ++b) {
    const QuantLaneBlock w = read_quant_lane(form_, panel, b, static_cast<int>(row % kQuantLanes));
    float* values = out.data() + b * kQuantBlock;
    for (int i = 0; i < kQuantBlock; ++i) {
      const float scale = w.scale[i < width ? 0 : 1];
      values[i] = static_cast<float>(w.n[i] - zero) * scale;  // exact: at most 24 significant bits
    }
    if (!form_.has_min()) continue;
    for (int i = 0; i < kQuantBlock; ++i) values[i] += w.min;
  }
  return {};
}

Status check_part(const WeightRows& part, size_t index, const TensorView& first) {
  const TensorView& t = part.tensor;
  if (!can_pack_quantised(t.dtype)) {
    return unsupported("part {} of a quantised weight is {}, which is not a GGUF block type; pack it as float", index,
                       dtype_name(t.dtype));
  }
  if (t.dtype != first.dtype) {
    return unsupported("part {} of a fused weight is {}, part 0 is {}; parts must share one type", index, dtype_name(t.dtype),
                       dtype_name(first.dtype));
  }
  if (t.shape.rank() == 0 || t.shape.elements() <= 0)
    return invalid_argument("part {} of a quantised weight is empty: shape {}", index, t.shape.to_string());
  if (t.cols() != first.cols()) {
    return invalid_argument("part {} of a fused weight has {} inputs, part 0 has {}; all must read the same x", index, t.cols(),
                            first.cols());
  }
  if (t.cols() % facts(t.dtype).block_elements != 0) {
    return invalid_argument("part {} has rows of {} elements, which is not a multiple of {}'s block of {}", index, t.cols(),
                            dtype_name(t.dtype), facts(t.dtype).block_elements);
  }
  if (t.data == nullptr || !t.device.host_accessible)
    return invalid_argument("part {} of a quantised weight is not in host memory", index);
  for (const int32_t row : part.order) {
    if (row < 0 || row >= t.rows()) return invalid_argument("part {}'s row order names row {}, it has {}", index, row, t.rows());
  }
  return {};
}

}  // namespace

bool can_pack_quantised(DType type) { return has_quant_form(type); }

Result<std::unique_ptr<PackedMatrix>> pack_quantised(std::span<const WeightRows> parts, ThreadPool& pool) {
  if (parts.empty()) return invalid_argument("a weight needs at least one part");
  std::vector<const std::byte*> rows;
  for (size_t i = 0; i < parts.size(); ++i) {
    CHORAL_RETURN_IF_ERROR(check_part(parts[i], i, parts[0].tensor));
    const TensorView& t = parts[i].tensor;
    if (parts[i].order.empty()) {
      for (int64_t r = 0; r < t.rows(); ++r) rows.push_back(t.row(r));
    } else {
      for (const int32_t r : parts[i].order) rows.push_back(t.row(r));
    }
  }
  const DType type = parts[0].tensor.dtype;
  const int64_t n = std::ssize(rows), k = parts[0].tensor.cols(), blocks = k / kQuantBlock;
  const int64_t panels = ceil_div(n, kQuantLanes), panel_bytes = quant_form(type).panel_bytes(blocks);
  const auto total = checked_mul(panels, panel_bytes);
  if (!total) return too_large("a quantised weight of {} x {} has more bytes than can be counted", n, k);
  CHORAL_TRY(AlignedBuffer buffer, AlignedBuffer::allocate(*total));
  pool.parallel_for(panels, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t first = p * kQuantLanes, count = std::min<int64_t>(kQuantLanes, n - first);
      pack_quant_panel(type, std::span(rows).subspan(first, count), blocks, buffer.data() + p * panel_bytes);
    }
  });
  return std::unique_ptr<PackedMatrix>(std::make_unique<QuantisedMatrix>(type, n, k, std::move(buffer)));
}

}  // namespace choral::kernels
