#include "kernels/gemm/gemm_float.h"

#include "kernels/gemm/gemm_float_blocking.h"
#include "kernels/gemm/kept_matrix.h"
#include "kernels/gemm/tile_product.h"

namespace choral::kernels {
namespace {

class FloatMatrix final : public PackedMatrix {
 public:
  explicit FloatMatrix(FloatPanels panels) : PackedMatrix(panels.n, panels.k), panels_(std::move(panels)) {}

  int64_t size_bytes() const override { return static_cast<int64_t>(panels_.bytes.size_bytes()); }
  std::string format() const override {
    switch (panels_.dtype) {
      case DType::kBF16: return "bf16";
      case DType::kF16: return "f16";
      default: return "f32";
    }
  }
  std::string kernel_name(CpuLevel level) const override {
    const auto* tiles = tile_product(level);
    return fmt::format("{} x f32, {}", format(), tiles != nullptr ? tiles->name : float_kernels(level).name);
  }
  int64_t most_rows(CpuLevel level) const override {
    const auto* tiles = tile_product(level);
    return tiles != nullptr ? tiles->most_rows() : most_float_rows();
  }
  const MatrixProduct* plan(const Context& ctx, const ProductInput& x, const Epilogue& epilogue, MatrixView<float> y,
                            int threads) const override {
    if (const auto* tiles = tile_product(ctx.level)) return tiles->plan(panels_, ctx, x.x, epilogue, y, threads);
    return plan_float_panels(float_kernels(ctx.level), panels_, ctx, x.x, epilogue, y, threads);
  }
  Status read_row(int64_t row, std::span<float> out) const override {
    read_panel_row(panels_, row, out);
    return {};
  }
  std::optional<KeptMatrix> kept() const override {
    return KeptMatrix{
        .kind = KeptMatrix::Kind::kFloat, .n = n(), .k = k(), .dtype = panels_.dtype, .panels = panels_.bytes.bytes()};
  }

 private:
  const TileProduct* tile_product(CpuLevel level) const {
    return panels_.dtype == DType::kBF16 ? bf16_tile_product(level) : nullptr;
  }

  FloatPanels panels_;
};

}  // namespace

Result<std::unique_ptr<PackedMatrix>> pack_float(std::span<const WeightRows> parts, DType as, ThreadPool& pool) {
  CHORAL_TRY(FloatPanels panels, pack_float_panels(parts, as, pool));
  return std::unique_ptr<PackedMatrix>(std::make_unique<FloatMatrix>(std::move(panels)));
}

Result<std::unique_ptr<PackedMatrix>> restore_float(const KeptMatrix& kept, std::shared_ptr<const void> owner) {
  const DType type = kept.dtype;
  if (type != DType::kF32 && type != DType::kBF16 && type != DType::kF16) {
    return corrupt("float panels of the type {}", static_cast<int>(type));
  }
  if (is_beyond_memory(kept.n, kept.k)) return too_large("a weight of [{}, {}] is beyond any memory", kept.n, kept.k);
  FloatPanels panels{.dtype = type, .n = kept.n, .k = kept.k, .panel_bytes = float_panel_bytes(type, kept.k)};
  CHORAL_RETURN_IF_ERROR(check_panels(kept, float_panels_bytes(type, kept.n, kept.k)));
  panels.bytes = PanelBytes(kept.panels, std::move(owner));
  return std::unique_ptr<PackedMatrix>(std::make_unique<FloatMatrix>(std::move(panels)));
}

int64_t packed_float_bytes(int64_t n, int64_t k, DType as) { return float_panels_bytes(as, n, k); }

}  // namespace choral::kernels
