// int8 weights with one scale for each output channel, multiplied with int8 rows of x. W8A8: x has one scale, known from
// calibration. W8A8_DYNAMIC: each row has its own, as it comes. In flight, from a float checkpoint: s = max|w| / 127 of an output
// channel, q = rint(w / s), as rows of x are quantised (kernels/quant/row_quant.h).
#include <cmath>

#include "kernels/quant/dequantise.h"
#include "kernels/quant/row_quant.h"
#include "quant/scheme.h"

namespace choral::quant {
namespace {

// Int8 rows of all shards, and how they are packed.
struct Int8Weight {
  std::vector<kernels::WeightRows> rows;
  std::vector<float> scales;
  kernels::RowQuant input = {};

  Result<PackedLayer> pack(const platform::Context& ctx) const {
    CHORAL_TRY(auto packed, ctx.session.prepack(ctx, {.rows = rows, .format = DType::kI8, .scales = scales, .input = input}));
    PackedLayer layer;
    layer.runs.push_back({0, std::move(packed)});
    return layer;
  }
};

// A vector of scales as floats.
Status read_scales(const Shard& shard, std::span<float> scales) {
  kernels::dequantise_row(shard.tensor.view.dtype, shard.tensor.view.data, std::ssize(scales), scales.data());
  for (const float scale : scales) {
    if (!std::isfinite(scale)) return corrupt("{} holds a NaN or an infinity", shard.name);
  }
  return {};
}

class Stored : public Scheme {
 public:
  explicit Stored(bool fixed_input) : fixed_input_(fixed_input) {}

  void create_weights(const LinearShape& shape, ParameterSet& parameters) const override {
    auto& weight = parameters.add("weight", StoredAs::kInt8);
    for (size_t i = 0; i < shape.out.size(); ++i) {
      weight.shards.push_back({shape.shard_names[i] + ".weight", {shape.out[i], shape.in}, {}});
    }
    auto& scale = parameters.add("weight_scale", StoredAs::kFloat);
    for (size_t i = 0; i < shape.out.size(); ++i) {
      scale.shards.push_back({shape.shard_names[i] + ".weight_scale", {shape.out[i], 1}, {}});
    }
    if (!fixed_input_) return;
    auto& input = parameters.add("input_scale", StoredAs::kFloat);
    for (const auto& name : shape.shard_names) input.shards.push_back({name + ".input_scale", {1}, {}});
  }

  Result<PackedLayer> pack(const platform::Context& ctx, const WeightRequest&, const LinearShape& shape,
                           ParameterSet& parameters) const override {
    Int8Weight int8;
    for (const Shard& shard : parameters.get("weight").shards) {
      int8.rows.push_back({shard.tensor.view, shard.tensor.row_order});
    }
    int8.scales.resize(shape.out_total());
    int64_t begin = 0;
    for (const Shard& shard : parameters.get("weight_scale").shards) {
      CHORAL_RETURN_IF_ERROR(read_scales(shard, std::span(int8.scales).subspan(begin, shard.shape[0])));
      begin += shard.shape[0];
    }
    if (fixed_input_) CHORAL_RETURN_IF_ERROR(fix_input(parameters.get("input_scale"), int8));
    return int8.pack(ctx);
  }

 private:
  // Members that are computed as one matrix share one x, and so the largest of their scales.
  static Status fix_input(const Parameter& stored, Int8Weight& int8) {
    float largest = 0;
    for (const Shard& shard : stored.shards) {
      float scale = 0;
      CHORAL_RETURN_IF_ERROR(read_scales(shard, {&scale, 1}));
      if (scale <= 0) return corrupt("{} is {}; a scale is above 0", shard.name, scale);
      largest = std::max(largest, scale);
    }
    int8.input.fixed = kernels::StaticQuant{.scale = largest, .offset = 0};
    for (float& scale : int8.scales) scale *= largest;  // of the product
    return {};
  }

  bool fixed_input_;
};

class InFlight : public Scheme {
 public:
  void create_weights(const LinearShape& shape, ParameterSet& parameters) const override {
    auto& weight = parameters.add("weight", StoredAs::kFloat);
    for (size_t i = 0; i < shape.out.size(); ++i) {
      weight.shards.push_back({shape.shard_names[i] + ".weight", {shape.out[i], shape.in}, {}});
    }
  }

  Result<PackedLayer> pack(const platform::Context& ctx, const WeightRequest&, const LinearShape& shape,
                           ParameterSet& parameters) const override {
    CHORAL_TRY(auto memory, Tensor::allocate(DType::kI8, {shape.out_total(), shape.in}));
    Int8Weight int8{.rows = {}, .scales = std::vector<float>(shape.out_total())};
    int64_t begin = 0;
    for (const Shard& shard : parameters.get("weight").shards) {
      const int64_t rows = shard.shape[0];
      const MatrixView<int8_t> q(memory.as<int8_t>().data() + begin * shape.in, rows, shape.in);
      CHORAL_RETURN_IF_ERROR(
          quantise(ctx.kernel, shard.tensor.view, q, std::span(int8.scales).subspan(begin, rows)).while_(shard.name));
      int8.rows.push_back({{std::as_bytes(std::span(q.data, rows * shape.in)).data(), DType::kI8, shard.shape, kCpuDevice},
                           shard.tensor.row_order});
      begin += rows;
    }
    return int8.pack(ctx);
  }

 private:
  static constexpr int64_t kRowsAtOnce = 128;

  static Status quantise(const kernels::Context& ctx, const TensorView& weight, MatrixView<int8_t> q, std::span<float> scales) {
    for (int64_t row = 0; row < q.rows; row += kRowsAtOnce) {
      const Arena::Mark mark(ctx.scratch);
      const int64_t count = std::min(kRowsAtOnce, q.rows - row);
      const MatrixView<float> floats(ctx.scratch.make<float>(count * q.cols).data(), count, q.cols);
      ctx.pool.parallel_for(count, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t r = begin; r < end; ++r) {
          kernels::dequantise_row(weight.dtype, weight.row(row + r), q.cols, floats.row(r));
        }
      });
      const auto made = scales.subspan(row, count);
      kernels::dynamic_quant_rows(ctx, floats, q.sub_rows(row, count), made);
      for (int64_t r = 0; r < count; ++r) {
        if (!std::isfinite(made[r])) return corrupt("row {} holds a NaN or an infinity", row + r);
      }
    }
    return {};
  }
};

}  // namespace

SchemePtr w8a8_scheme() {
  static const auto scheme = std::make_shared<Stored>(/*fixed_input=*/true);
  return scheme;
}

SchemePtr w8a8_dynamic_scheme() {
  static const auto scheme = std::make_shared<Stored>(/*fixed_input=*/false);
  return scheme;
}

SchemePtr w8a8_in_flight_scheme() {
  static const auto scheme = std::make_shared<InFlight>();
  return scheme;
}

}  // namespace choral::quant
