#include <algorithm>
#include <cmath>

#include "kernels/quant/dequantise.h"
#include "kernels/quant/row_quant.h"
#include "quant/integers/integer_storage.h"
#include "quant/integers/stored_vectors.h"
#include "quant/rounded_weight.h"

namespace choral::quant {
namespace {

constexpr int64_t kRowsAtOnce = 128;

// rint(v) for |v| < 2^22, without the call that SSE2 makes of it.
float to_nearest(float v) {
  constexpr float kAbove = 12582912.0f;  // 1.5 · 2^23: the float's last bit is 1 there
  return (v + kAbove) - kAbove;
}

float round_group(const float* w, int64_t count, int8_t* q) {
  float farthest = 0;
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) {
    if (std::abs(w[i]) > std::abs(farthest)) farthest = w[i];
    finite &= std::isfinite(w[i]);
  }
  if (!finite) return std::numeric_limits<float>::quiet_NaN();
  const float scale = farthest / -8.0f;
  for (int64_t i = 0; i < count; ++i) {
    q[i] = scale == 0 ? int8_t{0} : static_cast<int8_t>(std::clamp(to_nearest(w[i] / scale), -8.0f, 7.0f));
  }
  return scale;
}

class RoundedFloats : public IntegerStorage {
 public:
  explicit RoundedFloats(int bits) : bits_(bits) {}
  int bits() const override { return bits_; }

  void create_weights(const LinearShape& shape, ParameterSet& parameters) const override {
    add_weight(shape, StoredAs::kFloat, parameters);
  }

  int64_t expected_bytes(const LinearShape& shape, const ParameterSet&) const override {
    const int64_t group = rounded_group_size(bits_, shape.in);
    const int64_t scales = shape.out_total() * (group == 0 ? 1 : shape.in / group);
    return shape.in * shape.out_total() * bits_ / 8 + scales * static_cast<int64_t>(sizeof(float));
  }

  Result<IntegerWeight> read(const platform::Context& ctx, const LinearShape&, ParameterSet& parameters,
                             size_t shard) const override {
    const Shard& weight = parameters.get("weight").shards[shard];
    Tensor turned;
    CHORAL_TRY(const auto view, as_rows(ctx, weight.tensor, turned));
    CHORAL_TRY(RoundedWeight rounded, round_to_int(ctx.kernel, view, bits_, weight.name));
    return IntegerWeight{.q = {rounded.codes.view(), weight.tensor.row_order},
                         .memory = std::move(rounded.codes),
                         .group_size = rounded.group_size,
                         .scales = std::move(rounded.scales)};
  }

 private:
  int bits_;
};

}  // namespace

int64_t rounded_group_size(int bits, int64_t k) {
  constexpr int64_t kGroup = 32;
  return bits == 4 && k % kGroup == 0 ? kGroup : 0;
}

Result<RoundedWeight> round_to_int(const kernels::Context& ctx, const TensorView& weight, int bits, std::string_view name) {
  const int64_t rows = weight.rows(), k = weight.cols(), group = rounded_group_size(bits, k);
  const int64_t groups = group == 0 ? 1 : k / group;
  RoundedWeight out{.codes = {}, .group_size = group, .scales = std::vector<float>(rows * groups)};
  CHORAL_TRY(out.codes, Tensor::allocate(DType::kI8, {rows, k}));
  const auto q = out.codes.as<int8_t>();
  for (int64_t row = 0; row < rows; row += kRowsAtOnce) {
    const Arena::Mark mark(ctx.scratch);
    const int64_t count = std::min(kRowsAtOnce, rows - row);
    const MatrixView<float> floats(ctx.scratch.make<float>(count * k).data(), count, k);
    const MatrixView<int8_t> to(q.data() + row * k, count, k);
    const auto scales = std::span(out.scales).subspan(row * groups, count * groups);
    ctx.pool.parallel_for(count, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        kernels::dequantise_row(weight.dtype, weight.row(row + r), k, floats.row(r));
        for (int64_t g = 0; bits == 4 && g < groups; ++g) {
          scales[r * groups + g] = round_group(floats.row(r) + g * (k / groups), k / groups, to.row(r) + g * (k / groups));
        }
      }
    });
    if (bits == 8) kernels::dynamic_quant_rows(ctx, floats, to, scales);
    for (int64_t i = 0; i < std::ssize(scales); ++i) {
      if (!std::isfinite(scales[i])) return corrupt("{}: row {} holds a NaN or an infinity", name, row + i / groups);
    }
  }
  return out;
}

std::shared_ptr<const IntegerStorage> rounded_floats(int bits) { return std::make_shared<RoundedFloats>(bits); }

}  // namespace choral::quant
