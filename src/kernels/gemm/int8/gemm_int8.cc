#include "kernels/gemm/int8/gemm_int8.h"

#include <cmath>
#include <vector>

#include "kernels/gemm/int8/int8_multiply.h"
#include "kernels/gemm/kept_matrix.h"
#include "kernels/gemm/weight_parts.h"

namespace choral::kernels {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 42;  // far above any machine; keeps every later product of sizes in 63 bits

class Int8Matrix final : public PackedMatrix {
 public:
  Int8Matrix(Int8Panels panels, RowQuant input)
      : PackedMatrix(panels.n, panels.form.k), panels_(std::move(panels)), input_(input) {}

  int64_t size_bytes() const override { return static_cast<int64_t>(panels_.bytes.size_bytes()); }
  std::string format() const override {
    return panels_.form.group == kInt8LongestGroup ? "int8" : fmt::format("int8 in groups of {}", panels_.form.group);
  }
  std::string kernel_name(CpuLevel level) const override {
    return fmt::format("{} x {} int8, {}", format(), input_.fixed ? "static" : "dynamic",
                       int8_kernels(level, most_int8_rows()).name);
  }
  std::optional<RowForm> quantised_input(CpuLevel) const override {
    return RowForm{.kind = RowForm::Kind::kInt8, .int8 = input_};
  }
  int64_t most_rows(CpuLevel) const override { return most_int8_rows(); }
  const MatrixProduct* plan(const Context& ctx, const ProductInput& x, const Epilogue& epilogue, MatrixView<float> y,
                            int threads) const override {
    return plan_int8_panels(panels_, ctx, *quantised_input(ctx.level), x, epilogue, y, threads);
  }
  Status read_row(int64_t row, std::span<float> out) const override {
    read_int8_row(panels_, row, input_.fixed ? input_.fixed->scale : 1.0f, out);
    return {};
  }
  std::optional<KeptMatrix> kept() const override {
    return KeptMatrix{.kind = KeptMatrix::Kind::kInt8,
                      .n = n(),
                      .k = k(),
                      .group_size = panels_.form.group == kInt8LongestGroup ? 0 : panels_.form.group,
                      .fixed_input = input_.fixed,
                      .panels = panels_.bytes.bytes()};
  }

 private:
  Int8Panels panels_;
  RowQuant input_;
};

Status check_options(const Int8Options& options) {
  if (const int64_t size = options.group_size; size != 0 && size != 32 && size != 64 && size != 128) {
    return unsupported("int8 weights come in groups of 32, 64 or 128 or with one scale a channel (0), not in groups of {}", size);
  }
  if (!options.input.fixed) return {};
  const auto [scale, offset] = *options.input.fixed;
  if (!(scale > 0) || !std::isfinite(scale) || offset < -128 || offset > 127) {
    return invalid_argument("a static input has a scale above 0 and an offset within int8, not {} and {}", scale, offset);
  }
  return {};
}

Int8Form form_of(int64_t k, const Int8Options& options) {
  return {.k = k,
          .group = options.group_size == 0 ? kInt8LongestGroup : options.group_size,
          .corrected = options.input.fixed && options.input.fixed->offset != 0};
}

Status check_size(int64_t n, int64_t k) {
  const auto elements = checked_mul(static_cast<uint64_t>(n) + kInt8Lanes, static_cast<uint64_t>(k) + kInt8Step);
  if (elements && *elements <= kMaxBytes / 4) return {};
  return too_large("a weight of [{}, {}] is beyond any memory", n, k);
}

// The rows of all parts in packed order, and their corrections.
struct Channels {
  std::vector<Int8Channel> channels;
  std::vector<int32_t> corrections;  // [n, groups], or none

  void add(const Int8Part& part, int64_t row, int64_t groups) {
    const auto scales = part.scales.subspan(static_cast<size_t>(row * groups), static_cast<size_t>(groups));
    channels.push_back({reinterpret_cast<const int8_t*>(part.rows.tensor.row(row)), scales, {}});
  }
};

void fill_offset_corrections(const Int8Form& form, int32_t offset, ThreadPool& pool, Channels& all) {
  const int64_t n = static_cast<int64_t>(all.channels.size()), groups = form.groups();
  all.corrections.resize(static_cast<size_t>(n * groups));
  pool.parallel_for(n, 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t g = 0; g < groups; ++g) {
        int32_t sum = 0;
        for (int64_t k = g * form.group; k < g * form.group + form.group_k(g); ++k)
          sum += all.channels[static_cast<size_t>(i)].w[k];
        all.corrections[static_cast<size_t>(i * groups + g)] = -offset * sum;
      }
    }
  });
}

}  // namespace

Result<std::unique_ptr<PackedMatrix>> pack_int8(std::span<const Int8Part> parts, const Int8Options& options, ThreadPool& pool) {
  if (parts.empty()) return invalid_argument("a weight needs at least one part");
  CHORAL_RETURN_IF_ERROR(check_options(options));
  const Shape& first = parts[0].rows.tensor.shape;
  Int8Panels panels{.form = form_of(first.rank() == 2 ? std::max<int64_t>(first[1], 0) : 0, options)};
  const Int8Form& form = panels.form;
  const int64_t scales_a_row = options.group_size == 0 ? 1 : form.groups();
  Channels all;
  for (size_t i = 0; i < parts.size(); ++i) {
    CHORAL_RETURN_IF_ERROR(check_part(parts[i].rows, i, "an int8 weight", DType::kI8, form.k));
    CHORAL_RETURN_IF_ERROR(check_scales(parts[i].rows, i, parts[i].scales, scales_a_row));
    for_each_row(parts[i].rows, [&](int64_t row) { all.add(parts[i], row, scales_a_row); });
  }
  panels.n = static_cast<int64_t>(all.channels.size());
  CHORAL_RETURN_IF_ERROR(check_size(panels.n, form.k));

  if (form.corrected) fill_offset_corrections(form, options.input.fixed->offset, pool, all);
  const auto corrections_a_row = all.corrections.size() / all.channels.size();
  for (size_t i = 0; i < all.channels.size(); ++i) {
    all.channels[i].corrections = std::span(all.corrections).subspan(i * corrections_a_row, corrections_a_row);
  }
  const int64_t panel_bytes = form.panel_bytes();
  CHORAL_TRY(AlignedBuffer bytes, AlignedBuffer::allocate(static_cast<size_t>(panels.panels() * panel_bytes)));
  pool.parallel_for(panels.panels(), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t p = begin; p < end; ++p) {
      const auto row = static_cast<size_t>(p * kInt8Lanes);
      const auto count = std::min<size_t>(kInt8Lanes, all.channels.size() - row);
      pack_int8_panel(form, std::span(all.channels).subspan(row, count), bytes.data() + p * panel_bytes);
    }
  });
  panels.bytes = std::move(bytes);
  return std::unique_ptr<PackedMatrix>(std::make_unique<Int8Matrix>(std::move(panels), options.input));
}

Result<std::unique_ptr<PackedMatrix>> restore_int8(const KeptMatrix& kept, std::shared_ptr<const void> owner) {
  const Int8Options options{.group_size = kept.group_size, .input = {.fixed = kept.fixed_input}};
  CHORAL_RETURN_IF_ERROR(check_options(options));
  CHORAL_RETURN_IF_ERROR(check_size(kept.n, kept.k));
  Int8Panels panels{.form = form_of(kept.k, options), .n = kept.n};
  CHORAL_RETURN_IF_ERROR(check_panels(kept, panels.panels() * panels.form.panel_bytes()));
  panels.bytes = PanelBytes(kept.panels, std::move(owner));
  return std::unique_ptr<PackedMatrix>(std::make_unique<Int8Matrix>(std::move(panels), options.input));
}

}  // namespace choral::kernels
