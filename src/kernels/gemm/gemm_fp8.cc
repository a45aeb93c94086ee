#include "kernels/gemm/gemm_fp8.h"

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/checked_math.h"
#include "base/first_found.h"
#include "base/float8.h"
#include "kernels/gemm/gemm_float_blocking.h"
#include "kernels/gemm/gemm_float_pack.h"
#include "kernels/gemm/kept_matrix.h"
#include "kernels/gemm/weight_parts.h"

namespace choral::kernels {
namespace {

constexpr float kCodeScale = 256.0f;  // kernels see 2^-8 of a code's value

class Fp8Matrix final : public PackedMatrix {
 public:
  Fp8Matrix(FloatPanels panels, int64_t group_size)
      : PackedMatrix(panels.n, panels.k), panels_(std::move(panels)), group_size_(group_size) {}

  int64_t size_bytes() const override { return static_cast<int64_t>(panels_.bytes.size_bytes()); }
  std::string format() const override { return group_size_ == 0 ? "fp8" : fmt::format("fp8 in groups of {}", group_size_); }
  std::string kernel_name(CpuLevel level) const override {
    return fmt::format("{} x f32, {}", format(), float_kernels(level).name);
  }
  int64_t most_rows(CpuLevel) const override { return most_float_rows(); }
  const MatrixProduct* plan(const Context& ctx, const ProductInput& x, const Epilogue& epilogue, MatrixView<float> y,
                            int threads) const override {
    return plan_float_panels(float_kernels(ctx.level), panels_, ctx, x.x, epilogue, y, threads);
  }
  Status read_row(int64_t row, std::span<float> out) const override {
    read_panel_row(panels_, row, out);
    return {};
  }
  std::optional<KeptMatrix> kept() const override {
    return KeptMatrix{
        .kind = KeptMatrix::Kind::kFp8, .n = n(), .k = k(), .group_size = group_size_, .panels = panels_.bytes.bytes()};
  }

 private:
  FloatPanels panels_;
  int64_t group_size_;
};

Status check_group_size(int64_t group_size) {
  if (group_size >= 0 && group_size % 32 == 0) return {};
  return unsupported("fp8 weights come in groups of a multiple of 32 or with one scale a channel (0), not in groups of {}",
                     group_size);
}

// How the panels of a weight [n, k] lie.
Result<FloatPanels> panels_of(int64_t n, int64_t k, int64_t group_size) {
  if (is_beyond_memory(n, k)) return too_large("a weight of [{}, {}] is beyond any memory", n, k);
  FloatPanels panels{.dtype = DType::kF8E4M3, .n = n, .k = k};
  panels.group = group_size == 0 || group_size > k ? round_up(k, kXChunk) : group_size;
  panels.panel_bytes = round_up(panels.offset(round_up(k, 2)), static_cast<int64_t>(kCacheLineBytes));
  return panels;
}

// One output channel, in packed order.
struct Channel {
  const std::byte* codes;  // [k]
  std::span<const float> scales;
  int64_t part, row;  // where it comes from
};

Status check_fp8_part(const Fp8Part& part, size_t index, int64_t k, int64_t groups) {
  CHORAL_RETURN_IF_ERROR(check_part(part.rows, index, "an fp8 weight", DType::kF8E4M3, k));
  CHORAL_RETURN_IF_ERROR(check_scale_count(part.rows, index, part.scales, groups));
  for (int64_t i = 0; i < std::ssize(part.scales); ++i) {
    if (!std::isfinite(part.scales[i] * kFloat8E4M3Max)) {
      return invalid_argument("part {} has a scale of {} for row {}; 448 of it is no finite float", index, part.scales[i],
                              i / groups);
    }
  }
  return {};
}

bool holds_nan(const std::byte* codes, int64_t count) {
  bool found = false;
  for (int64_t i = 0; i < count; ++i) found |= is_nan(Float8E4M3{std::to_integer<uint8_t>(codes[i])});
  return found;
}

void pack_panel(const FloatPanels& panels, std::span<const Channel> channels, const PackKernels& kernels, std::byte* panel) {
  for (int64_t g = 0; g * panels.group < panels.k; ++g) {
    const int64_t k0 = g * panels.group, count = std::min(panels.group, panels.k - k0);
    std::byte* out = panel + panels.offset(k0);
    std::array<const std::byte*, kPanelRows> codes{};
    for (size_t lane = 0; lane < channels.size(); ++lane) {
      const float scale = channels[lane].scales[static_cast<size_t>(g)] * kCodeScale;
      std::memcpy(out + lane * sizeof scale, &scale, sizeof scale);
      codes[lane] = channels[lane].codes + k0;
    }
    out += kPanelScaleBytes;
    kernels.transpose16(codes.data(), static_cast<int>(channels.size()), count / 2, out);
    if (count % 2 == 0) continue;
    out += count / 2 * kPanelRows * 2;
    for (size_t lane = 0; lane < channels.size(); ++lane) out[lane * 2] = codes[lane][count - 1];
  }
}

}  // namespace

Result<std::unique_ptr<PackedMatrix>> pack_fp8(std::span<const Fp8Part> parts, int64_t group_size, ThreadPool& pool) {
  if (parts.empty()) return invalid_argument("a weight needs at least one part");
  CHORAL_RETURN_IF_ERROR(check_group_size(group_size));
  const Shape& first = parts[0].rows.tensor.shape;
  const int64_t k = first.rank() == 2 ? std::max<int64_t>(first[1], 0) : 0;
  const int64_t groups = k == 0 ? 0 : group_size == 0 || group_size > k ? 1 : ceil_div(k, group_size);
  std::vector<Channel> channels;
  for (size_t i = 0; i < parts.size(); ++i) {
    CHORAL_RETURN_IF_ERROR(check_fp8_part(parts[i], i, k, groups));
    for_each_row(parts[i].rows, [&](int64_t row) {
      channels.push_back(
          {parts[i].rows.tensor.row(row), parts[i].scales.subspan(row * groups, groups), static_cast<int64_t>(i), row});
    });
  }
  CHORAL_TRY(FloatPanels panels, panels_of(std::ssize(channels), k, group_size));
  CHORAL_TRY(AlignedBuffer bytes, AlignedBuffer::allocate(panels.panels() * panels.panel_bytes));

  const PackKernels& kernels = pack_kernels(cpu_level());
  FirstFound bad;  // channel that holds a NaN
  pool.parallel_for(panels.panels(), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t row = p * kPanelRows;
      const auto own = std::span(channels).subspan(row, std::min(kPanelRows, panels.n - row));
      for (int64_t i = 0; i < std::ssize(own); ++i) {
        if (holds_nan(own[i].codes, panels.k)) bad.found(row + i);
      }
      pack_panel(panels, own, kernels, bytes.data() + p * panels.panel_bytes);
    }
  });
  if (const auto row = bad.index()) {
    return corrupt("part {} of an fp8 weight holds a NaN in row {}", channels[*row].part, channels[*row].row);
  }
  panels.bytes = std::move(bytes);
  return std::unique_ptr<PackedMatrix>(std::make_unique<Fp8Matrix>(std::move(panels), group_size));
}

Result<std::unique_ptr<PackedMatrix>> restore_fp8(const KeptMatrix& kept, std::shared_ptr<const void> owner) {
  CHORAL_RETURN_IF_ERROR(check_group_size(kept.group_size));
  CHORAL_TRY(FloatPanels panels, panels_of(kept.n, kept.k, kept.group_size));
  CHORAL_RETURN_IF_ERROR(check_panels(kept, panels.panels() * panels.panel_bytes));
  panels.bytes = PanelBytes(kept.panels, std::move(owner));
  return std::unique_ptr<PackedMatrix>(std::make_unique<Fp8Matrix>(std::move(panels), kept.group_size));
}

}  // namespace choral::kernels
