#include "kernels/gemm/gemm_quant_matrix.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/gemm/gemm_quant_kernel.h"
#include "kernels/gemm/tile_finish.h"

namespace choral::kernels {
namespace {

// Rows multiplied per pass over W: enough to hide the reading of W behind the arithmetic, few enough that quantised x stays near.
constexpr int64_t kRowsPerPass = 96;

std::string_view name_of(Planes planes) {
  switch (planes) {
    case Planes::kTwo: return "2 int8";
    case Planes::kOne: return "1 int8";
    case Planes::kOneScale: return "dynamic int8";
  }
  return {};
}

class QuantisedMatrix final : public PackedMatrix {
 public:
  QuantisedMatrix(QuantisedShape shape, AlignedBuffer panels)
      : PackedMatrix(shape.n, shape.k),
        name_(std::move(shape.name)),
        form_(shape.form),
        planes_(shape.planes),
        panel_bytes_(form_.panel_bytes(shape.k / kQuantBlock)),
        panels_(std::move(panels)) {}

  int64_t size_bytes() const override { return static_cast<int64_t>(panels_.size_bytes()); }
  std::string format() const override { return name_; }
  std::string kernel_name(CpuLevel level) const override {
    return fmt::format("{} x {}, {}", name_, name_of(planes_), quant_kernel(form_, level).name);
  }
  void multiply(const Context& ctx, MatrixView<const float> x, const Epilogue& epilogue, MatrixView<float> y) const override;
  std::optional<RowForm> quantised_input(CpuLevel level) const override {
    return RowForm{.kind = RowForm::Kind::kPlanes,
                   .planes = {.zero = quant_kernel(form_, level).zero, .halves = form_.sub_blocks() == 2, .planes = planes_}};
  }
  void multiply_quantised(const Context& ctx, const QuantisedRows& x, const Epilogue& epilogue,
                          MatrixView<float> y) const override;
  Status read_row(int64_t row, std::span<float> out) const override;

 private:
  void multiply_pass(const Context& ctx, const QuantKernel& kernel, int64_t first_row, const QuantisedBlock* x,
                     const Epilogue& epilogue, MatrixView<float> y) const;

  std::string name_;
  QuantForm form_;
  Planes planes_;
  int64_t panel_bytes_;
  AlignedBuffer panels_;
};

// Rows 2r and 2r + 1 of a tile are the planes of row r: their sum takes its place. Gives the tile of half as many rows.
MatrixView<float> add_planes(MatrixView<float> tile) {
  for (int64_t r = 0; r < tile.rows / 2; ++r) {
    const float *coarse = tile.row(2 * r), *fine = tile.row(2 * r + 1);
    float* out = tile.row(r);
    for (int64_t c = 0; c < tile.cols; ++c) out[c] = coarse[c] + fine[c];
  }
  return tile.sub_rows(0, tile.rows / 2);
}

void QuantisedMatrix::multiply(const Context& ctx, MatrixView<const float> x, const Epilogue& epilogue,
                               MatrixView<float> y) const {
  CHORAL_CHECK(x.cols == k() && y.cols == n() && x.rows == y.rows, "x is [m, k], y is [m, n]");
  const QuantKernel kernel = quant_kernel(form_, ctx.level);
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
  const QuantKernel kernel = quant_kernel(form_, ctx.level);
  for (int64_t row = 0; row < y.rows; row += kRowsPerPass) {
    const int64_t count = std::min(kRowsPerPass, y.rows - row);
    multiply_pass(ctx, kernel, row, x.sub_rows(row, count).planes().data(), epilogue, y.sub_rows(row, count));
  }
}

void QuantisedMatrix::multiply_pass(const Context& ctx, const QuantKernel& kernel, int64_t first_row, const QuantisedBlock* x,
                                    const Epilogue& epilogue, MatrixView<float> y) const {
  const Arena::Mark mark(ctx.scratch);
  const int64_t blocks = k() / kQuantBlock, rows = plane_count(planes_) * y.rows;
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
          .form = form_,
          .panels = panels_.data() + panel * panel_bytes_,
          .panel_bytes = panel_bytes_,
          .panel_count = static_cast<int>(std::min<int64_t>(kQuantPanelsAtOnce, panels - panel)),
          .x = x,
          .blocks = blocks,
          .rows = rows,
          .out = tile,
          .work = work.data() + thread * work_bytes,
      };
      (few ? kernel.direct : kernel.tiled)(args);
      const int64_t cols = std::min<int64_t>(kQuantTileColumns, n() - col);
      const MatrixView<float> sums(tile, rows, cols, kQuantTileColumns);
      finish_tile(planes_ == Planes::kTwo ? add_planes(sums) : sums, first_row, col, epilogue, y);
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
      values[i] = static_cast<float>(w.n[i] - zero) * scale;  // exact (at most 24 significant bits) unless a scale is a float32
    }
    if (!form_.has_min()) continue;
    for (int i = 0; i < kQuantBlock; ++i) values[i] += w.min[i < width ? 0 : 1];
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<PackedMatrix>> pack_panels(QuantisedShape shape, PackPanel pack, ThreadPool& pool) {
  const int64_t n = shape.n, panels = ceil_div(n, kQuantLanes), panel_bytes = shape.form.panel_bytes(shape.k / kQuantBlock);
  const auto total = checked_mul(panels, panel_bytes);
  if (!total) return too_large("a quantised weight of {} x {} has more bytes than can be counted", n, shape.k);
  CHORAL_TRY(AlignedBuffer buffer, AlignedBuffer::allocate(*total));
  pool.parallel_for(panels, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t first = p * kQuantLanes;
      pack(first, std::min<int64_t>(kQuantLanes, n - first), buffer.data() + p * panel_bytes);
    }
  });
  return std::unique_ptr<PackedMatrix>(std::make_unique<QuantisedMatrix>(std::move(shape), std::move(buffer)));
}

}  // namespace choral::kernels
