#include "kernels/gemm/gemm_quant_matrix.h"

#include <algorithm>
#include <array>
#include <new>

#include "base/check.h"
#include "kernels/gemm/gemm_float_panels.h"
#include "kernels/gemm/gemm_quant_kernel.h"
#include "kernels/gemm/kept_matrix.h"
#include "kernels/gemm/matrix_product.h"
#include "kernels/gemm/panel_bytes.h"
#include "kernels/gemm/tile_finish.h"
#include "kernels/gemm/work_division.h"

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
  QuantisedMatrix(QuantisedShape shape, PanelBytes panels)
      : PackedMatrix(shape.n, shape.k),
        name_(std::move(shape.name)),
        form_(shape.form),
        planes_(shape.planes),
        panel_bytes_(form_.panel_bytes(ceil_div(shape.k, kQuantBlock))),
        panels_(std::move(panels)) {}

  int64_t size_bytes() const override { return static_cast<int64_t>(panels_.size_bytes()); }
  std::string format() const override { return name_; }
  std::string kernel_name(CpuLevel level) const override {
    return fmt::format("{} x {}, {}", name_, name_of(planes_), quant_kernel(form_, level).name);
  }
  int64_t most_rows(CpuLevel) const override { return kRowsPerPass; }
  const MatrixProduct* plan(const Context& ctx, const ProductInput& x, const Epilogue& epilogue, MatrixView<float> y,
                            int threads) const override;
  std::optional<RowForm> quantised_input(CpuLevel level) const override {
    return RowForm{.kind = RowForm::Kind::kPlanes,
                   .planes = {.zero = quant_kernel(form_, level).zero, .halves = form_.sub_blocks() == 2, .planes = planes_}};
  }
  Status read_row(int64_t row, std::span<float> out) const override;
  std::optional<KeptMatrix> kept() const override {
    return KeptMatrix{.kind = KeptMatrix::Kind::kQuantised,
                      .n = n(),
                      .k = k(),
                      .form = form_,
                      .planes = planes_,
                      .name = name_,
                      .panels = panels_.bytes()};
  }

 private:
  friend class QuantisedProduct;

  std::string name_;
  QuantForm form_;
  Planes planes_;
  int64_t panel_bytes_;
  PanelBytes panels_;
};

class QuantisedProduct final : public MatrixProduct {
 public:
  QuantisedProduct(const Work& work, const QuantisedMatrix& w, CpuLevel level, MatrixView<const float> source,
                   const QuantisedRows& x, const Epilogue& epilogue, MatrixView<float> y)
      : MatrixProduct(work),
        w_(w),
        level_(level),
        kernel_(quant_kernel(w.form_, level)),
        source_(source),
        x_(x),
        rows_(plane_count(w.planes_) * y.rows),
        epilogue_(epilogue),
        y_(y) {
    if (epilogue.companion == nullptr || is_few(rows_)) return;
    // Not evenly up to the end, where a thread that is late would leave work.
    const int64_t calls = std::max<int64_t>(1, work.panels / kQuantPanelsAtOnce);
    along_bytes_ = std::min(most_along_bytes(kernel_, rows_, blocks()), ceil_div(2 * epilogue.companion->bytes_left(), calls));
  }

  static int64_t thread_bytes(int64_t rows) { return tile_bytes(rows) + (is_few(rows) ? 0 : int64_t{kQuantWorkBytes}); }

  void prepare(int64_t begin, int64_t end) const override {
    quantise_rows(level_, source_.sub_rows(begin, end - begin), x_.sub_rows(begin, end - begin));
  }
  void multiply(int64_t begin, int64_t end, std::byte* memory, int thread) const override {
    auto* tile = reinterpret_cast<float*>(memory);
    for (int64_t panel = begin; panel < end; panel += kQuantPanelsAtOnce) {
      const int64_t count = std::min<int64_t>(kQuantPanelsAtOnce, end - panel);
      const QuantKernelArgs args{
          .form = w_.form_,
          .panels = w_.panels_.data() + panel * w_.panel_bytes_,
          .panel_bytes = w_.panel_bytes_,
          .panel_count = static_cast<int>(count),
          .x = x_.planes().data(),
          .blocks = blocks(),
          .rows = rows_,
          .out = tile,
          .work = memory + tile_bytes(rows_),
      };
      const int64_t col = panel * kQuantLanes, cols = std::min<int64_t>(count * kQuantLanes, w_.n() - col);
      fetch_target(y_.sub_cols(col, cols));
      is_few(rows_) ? kernel_.direct(args) : multiply_along(args, thread);
      finish_tile(level_, {tile, rows_, cols, kQuantTileColumns}, static_cast<int>(plane_count(w_.planes_)), col, epilogue_, y_);
    }
  }

 private:
  int64_t blocks() const { return ceil_div(w_.k(), kQuantBlock); }
  // With the companion, where there is one and the kernel has room.
  void multiply_along(QuantKernelArgs args, int thread) const {
    if (along_bytes_ == 0 || args.panel_count < kQuantPanelsAtOnce) return kernel_.tiled(args);
    std::array<std::span<const std::byte>, 8> runs;
    size_t count = 0;
    for (int64_t left = along_bytes_; left > 0 && count < runs.size(); left -= std::ssize(runs[count++])) {
      runs[count] = epilogue_.companion->fetch(thread, left);
      if (runs[count].empty()) break;
    }
    args.along = std::span(runs).first(count);
    kernel_.tiled(args);
    epilogue_.companion->work(thread);
  }
  static bool is_few(int64_t rows) { return rows <= kQuantDirectRows; }
  static int64_t tile_bytes(int64_t rows) { return rows * kQuantTileColumns * static_cast<int64_t>(sizeof(float)); }

  const QuantisedMatrix& w_;
  CpuLevel level_;
  QuantKernel kernel_;
  MatrixView<const float> source_;
  QuantisedRows x_;
  int64_t rows_;  // of planes
  Epilogue epilogue_;
  int64_t along_bytes_ = 0;  // of the companion's, for each call of a kernel
  MatrixView<float> y_;
};

const MatrixProduct* QuantisedMatrix::plan(const Context& ctx, const ProductInput& x, const Epilogue& epilogue,
                                           MatrixView<float> y, int threads) const {
  const int64_t panels = ceil_div(n(), kQuantLanes);
  MatrixProduct::Work work{.panels = panels,
                           .task_panels = quant_panels_per_task(panels, threads),
                           .thread_bytes = QuantisedProduct::thread_bytes(plane_count(planes_) * y.rows)};
  QuantisedRows rows = x.quantised;
  if (rows.empty()) {
    rows = {ctx.scratch, *quantised_input(ctx.level), y.rows, k()};
    work.pieces = y.rows;
    work.piece_elements = k();
  }
  return new (ctx.scratch.make<QuantisedProduct>(1).data()) QuantisedProduct(work, *this, ctx.level, x.x, rows, epilogue, y);
}

Status QuantisedMatrix::read_row(int64_t row, std::span<float> out) const {
  CHORAL_CHECK(row >= 0 && row < n() && std::ssize(out) == k(), "a row of W has k elements");
  const std::byte* panel = panels_.data() + row / kQuantLanes * panel_bytes_;
  const int width = kQuantBlock / form_.sub_blocks(), zero = form_.zero();
  for (int64_t b = 0; b < ceil_div(k(), kQuantBlock); ++b) {
    const int count = static_cast<int>(std::min<int64_t>(kQuantBlock, k() - b * kQuantBlock));
    const QuantLaneBlock w = read_quant_lane(form_, panel, b, static_cast<int>(row % kQuantLanes));
    float* values = out.data() + b * kQuantBlock;
    for (int i = 0; i < count; ++i) {
      const float scale = w.scale[i < width ? 0 : 1];
      values[i] = static_cast<float>(w.n[i] - zero) * scale;  // exact (at most 24 significant bits) unless a scale is a float32
    }
    if (!form_.has_min()) continue;
    for (int i = 0; i < count; ++i) values[i] += w.min[i < width ? 0 : 1];
  }
  return {};
}

// There are kernels for it.
bool is_known(const QuantForm& form) {
  const bool is_grid = is_of_grid(form.codes) && form.codes <= QuantCodes::kIQ3S;
  const QuantForm open{form.bits, form.scales, is_grid ? kAnyGrid : form.codes};
  const int blocks = form.blocks;
  if (std::find(kQuantForms.begin(), kQuantForms.end(), open) == kQuantForms.end()) return false;
  return form.has_float_scales() ? blocks == 1 || blocks == 2 || blocks == 4 || blocks == 8 : blocks == 0;
}

// Of all panels of a weight [n, k].
Result<int64_t> panels_bytes(const QuantForm& form, int64_t n, int64_t k) {
  if (is_beyond_memory(n, k)) return too_large("a quantised weight of {} x {} is beyond any memory", n, k);
  return ceil_div(n, kQuantLanes) * form.panel_bytes(ceil_div(k, kQuantBlock));
}

}  // namespace

Result<std::unique_ptr<PackedMatrix>> restore_quantised(const KeptMatrix& kept, std::shared_ptr<const void> owner) {
  if (!is_known(kept.form) || kept.planes > Planes::kOneScale) {
    return corrupt("panels of a form that there is no kernel for ({} bits)", kept.form.bits);
  }
  CHORAL_TRY(const int64_t total, panels_bytes(kept.form, kept.n, kept.k));
  CHORAL_RETURN_IF_ERROR(check_panels(kept, total));
  return std::unique_ptr<PackedMatrix>(std::make_unique<QuantisedMatrix>(
      QuantisedShape{kept.form, std::string(kept.name), kept.n, kept.k, kept.planes}, PanelBytes(kept.panels, std::move(owner))));
}

Result<std::unique_ptr<PackedMatrix>> pack_panels(QuantisedShape shape, PackPanel pack, ThreadPool& pool) {
  const int64_t n = shape.n, panels = ceil_div(n, kQuantLanes),
                panel_bytes = shape.form.panel_bytes(ceil_div(shape.k, kQuantBlock));
  CHORAL_TRY(const int64_t total, panels_bytes(shape.form, n, shape.k));
  CHORAL_TRY(AlignedBuffer buffer, AlignedBuffer::allocate(static_cast<size_t>(total)));
  pool.parallel_for(panels, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t first = p * kQuantLanes;
      pack(first, std::min<int64_t>(kQuantLanes, n - first), buffer.data() + p * panel_bytes);
    }
  });
  return std::unique_ptr<PackedMatrix>(std::make_unique<QuantisedMatrix>(std::move(shape), std::move(buffer)));
}

}  // namespace choral::kernels
