#include <algorithm>
#include <cmath>

#include "kernels/quant/dequantise.h"
#include "kernels/quant/row_quant.h"
#include "quant/integers/integer_storage.h"
#include "quant/integers/stored_vectors.h"

namespace choral::quant {
namespace {

constexpr int64_t kRowsAtOnce = 128;

// The largest usual group that divides k; else one for the whole row.
int64_t group_size_for(int64_t k) {
  for (const int64_t size : {128, 64, 32}) {
    if (k % size == 0) return size;
  }
  return 0;
}

// rint(v) for |v| < 2^22, without the call that SSE2 makes of it.
float to_nearest(float v) {
  constexpr float kAbove = 12582912.0f;  // 1.5 · 2^23: the float's last bit is 1 there
  return (v + kAbove) - kAbove;
}

float round_group(const float* w, int64_t count, int8_t* q) {
  float largest = 0;
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::abs(w[i]));
    finite &= std::isfinite(w[i]);
  }
  if (!finite) return std::numeric_limits<float>::quiet_NaN();
  const float scale = largest / 7.5f;
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
    for_each_shard(shape, parameters.add("weight", StoredAs::kFloat), ".weight", [&](int64_t out) {
      return Shape{out, shape.in};
    });
  }

  Result<IntegerWeight> read(const platform::Context& ctx, const LinearShape& shape, ParameterSet& parameters,
                             size_t shard) const override {
    const Shard& weight = parameters.get("weight").shards[shard];
    const int64_t rows = shape.out[shard], k = shape.in, group = bits_ == 8 ? 0 : group_size_for(k);
    const int64_t groups = group == 0 ? 1 : k / group;
    CHORAL_TRY(Tensor memory, Tensor::allocate(DType::kI8, {rows, k}));
    IntegerWeight out{.q = {memory.view(), weight.tensor.row_order}, .group_size = group};
    out.scales.resize(rows * groups);
    const auto q = memory.as<int8_t>();
    for (int64_t row = 0; row < rows; row += kRowsAtOnce) {
      const Arena::Mark mark(ctx.kernel.scratch);
      const int64_t count = std::min(kRowsAtOnce, rows - row);
      const MatrixView<float> floats(ctx.kernel.scratch.make<float>(count * k).data(), count, k);
      const MatrixView<int8_t> to(q.data() + row * k, count, k);
      const auto scales = std::span(out.scales).subspan(row * groups, count * groups);
      ctx.kernel.pool.parallel_for(count, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t r = begin; r < end; ++r) {
          kernels::dequantise_row(weight.tensor.view.dtype, weight.tensor.view.row(row + r), k, floats.row(r));
          for (int64_t g = 0; bits_ == 4 && g < groups; ++g) {
            scales[r * groups + g] = round_group(floats.row(r) + g * (k / groups), k / groups, to.row(r) + g * (k / groups));
          }
        }
      });
      if (bits_ == 8) kernels::dynamic_quant_rows(ctx.kernel, floats, to, scales);
      for (int64_t i = 0; i < std::ssize(scales); ++i) {
        if (!std::isfinite(scales[i])) return corrupt("{}: row {} holds a NaN or an infinity", weight.name, row + i / groups);
      }
    }
    out.memory = std::move(memory);
    return out;
  }

 private:
  int bits_;
};

}  // namespace

std::shared_ptr<const IntegerStorage> rounded_floats(int bits) { return std::make_shared<RoundedFloats>(bits); }

}  // namespace choral::quant
