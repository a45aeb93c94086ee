// FP8: e4m3 weights with scales of a float type or e8m0, one for a whole tensor, for each output channel, or for each block of
// rows and k; multiplied with float x (kernels/gemm/gemm_fp8.h). No CPU multiplies fp8, so the activations that a checkpoint was
// made for, rounded to fp8 with a scale that is calibrated or found as they come, would cost time and lose accuracy: x stays
// float, calibrated scales are read and not used. A float checkpoint is rounded in flight, a scale for each output channel
// (quant/rounded_weight.h).
#include <fmt/ranges.h>

#include <cmath>

#include "base/checked_math.h"
#include "base/float8.h"
#include "kernels/quant/dequantise.h"
#include "quant/rounded_weight.h"
#include "quant/scheme.h"
#include "quant/shards.h"

namespace choral::quant {
namespace {

// e4m3 rows of all members, and how they are packed.
struct Fp8Weight {
  std::vector<kernels::WeightRows> rows;
  std::vector<float> scales;  // [rows of all members, groups]
  int64_t group_size = 0;

  // x stays float, in full or as a device rounds it.
  Result<PackedLayer> pack(const platform::Context& ctx, const WeightRequest& request, const LinearShape& shape) const {
    const auto x = request.activations == kernels::Activations::k16Bits ? request.activations : kernels::Activations::kFull;
    auto packed = ctx.session.prepack(
        ctx, {.rows = rows, .format = DType::kF8E4M3, .activations = x, .group_size = group_size, .scales = scales});
    if (!packed.ok()) return std::move(packed).status().while_(fmt::format("{}", fmt::join(shape.shard_names, " + ")));
    PackedLayer layer;
    layer.runs.push_back({0, std::move(*packed)});
    return layer;
  }
};

// What may stand in the place of one scale.
const std::vector<Shape> kOneValue{Shape{1}, Shape{}, Shape{1, 1}};

class Stored : public Scheme {
 public:
  explicit Stored(Fp8Blocks blocks) : blocks_(blocks) {}
  std::string name() const override { return "FP8"; }

  void create_weights(const LinearShape& shape, ParameterSet& parameters) const override {
    add_weight(shape, StoredAs::kFloat8, parameters);
    // One of the two; both multiply.
    for (const char* name : {"weight_scale", "weight_scale_inv"}) {
      auto& scale = parameters.add(name, StoredAs::kFloatOrE8M0, Presence::kOptional);
      for (size_t i = 0; i < shape.out.size(); ++i) scale.shards.push_back(scale_shard(shape, i, name));
    }
    for (const char* name : {"input_scale", "activation_scale"}) {
      auto& input = parameters.add(name, StoredAs::kFloat, Presence::kOptional);
      for (const auto& member : shape.shard_names) input.shards.push_back({member + "." + name, {1}, {}, kOneValue});
    }
  }

  Result<PackedLayer> pack(const platform::Context& ctx, const WeightRequest& request, const LinearShape& shape,
                           ParameterSet& parameters) const override {
    Fp8Weight fp8;
    std::vector<const Shard*> scales;
    const auto& weights = parameters.get("weight").shards;
    for (size_t i = 0; i < weights.size(); ++i) {
      fp8.rows.push_back({weights[i].tensor.view, weights[i].tensor.row_order});
      const Shard &plain = parameters.get("weight_scale").shards[i], &inverse = parameters.get("weight_scale_inv").shards[i];
      if (plain.loaded() == inverse.loaded()) {
        return corrupt("{} has {} {} {} {} in the checkpoint; an fp8 weight has one of them", weights[i].name,
                       plain.loaded() ? "both" : "neither", plain.name, plain.loaded() ? "and" : "nor", inverse.name);
      }
      scales.push_back(plain.loaded() ? &plain : &inverse);
      if (scales.back()->tensor.view.shape == grid(shape, i)) fp8.group_size = blocks_.cols;
    }
    const int64_t groups = fp8.group_size == 0 ? 1 : ceil_div(shape.in, fp8.group_size);
    for (size_t i = 0; i < scales.size(); ++i) {
      const bool in_blocks = scales[i]->tensor.view.shape == grid(shape, i);
      CHORAL_RETURN_IF_ERROR(append_scales(*scales[i], in_blocks, shape.out[i], groups, fp8.scales));
    }
    return fp8.pack(ctx, request, shape);
  }

 private:
  // The shape of a member's scales if they are of blocks; else one that no scale has.
  Shape grid(const LinearShape& shape, size_t i) const {
    if (blocks_.rows == 0) return {0, 0};
    return {ceil_div(shape.out[i], blocks_.rows), ceil_div(shape.in, blocks_.cols)};
  }

  Shard scale_shard(const LinearShape& shape, size_t i, std::string_view name) const {
    Shard shard{fmt::format("{}.{}", shape.shard_names[i], name), {shape.out[i], 1}, {}};
    if (blocks_.rows != 0 && blocks_.said) {
      shard.shape = grid(shape, i);
      return shard;
    }
    shard.other_shapes = kOneValue;
    shard.other_shapes.push_back({shape.out[i]});
    if (blocks_.rows != 0) shard.other_shapes.push_back(grid(shape, i));
    return shard;
  }

  // `groups` of each row, from one of all, one of each row, or a grid of blocks.
  Status append_scales(const Shard& shard, bool in_blocks, int64_t rows, int64_t groups, std::vector<float>& scales) const {
    CHORAL_TRY(const auto stored, read_floats(shard));
    for (int64_t row = 0; row < rows; ++row) {
      const auto own = stored.begin() + (in_blocks ? row / blocks_.rows * groups : std::ssize(stored) == 1 ? 0 : row);
      for (int64_t group = 0; group < groups; ++group) scales.push_back(in_blocks ? own[group] : *own);
    }
    return {};
  }

  Fp8Blocks blocks_;
};

class InFlight : public Scheme {
 public:
  std::string name() const override { return "FP8"; }
  void create_weights(const LinearShape& shape, ParameterSet& parameters) const override {
    add_weight(shape, StoredAs::kFloat, parameters);
  }

  int64_t expected_bytes(const WeightRequest&, const LinearShape& shape, const ParameterSet&) const override {
    return shape.out_total() * (shape.in + static_cast<int64_t>(sizeof(float)));
  }

  Result<PackedLayer> pack(const platform::Context& ctx, const WeightRequest& request, const LinearShape& shape,
                           ParameterSet& parameters) const override {
    std::vector<RoundedWeight> members;
    Fp8Weight fp8;
    for (const Shard& shard : parameters.get("weight").shards) {
      Tensor turned;
      CHORAL_TRY(const auto view, as_rows(ctx, shard.tensor, turned));
      CHORAL_TRY(auto rounded, round_to_fp8(ctx.kernel, view, shard.name));
      fp8.rows.push_back({rounded.codes.view(), shard.tensor.row_order});
      fp8.scales.insert(fp8.scales.end(), rounded.scales.begin(), rounded.scales.end());
      members.push_back(std::move(rounded));
    }
    return fp8.pack(ctx, request, shape);
  }
};

}  // namespace

Result<RoundedWeight> round_to_fp8(const kernels::Context& ctx, const TensorView& weight, std::string_view name) {
  const int64_t rows = weight.rows(), k = weight.cols();
  RoundedWeight out{.codes = {}, .group_size = 0, .scales = std::vector<float>(rows)};
  CHORAL_TRY(out.codes, Tensor::allocate(DType::kF8E4M3, {rows, k}));
  const MatrixView<Float8E4M3> codes(out.codes.as<Float8E4M3>().data(), rows, k);
  const Arena::Mark mark(ctx.scratch);
  float* scratch = ctx.scratch.make<float>(k * ctx.pool.size()).data();
  ctx.pool.parallel_for(rows, 1, [&](int64_t begin, int64_t end, int thread) {
    const std::span<float> row(scratch + thread * k, static_cast<size_t>(k));
    for (int64_t r = begin; r < end; ++r) {
      kernels::dequantise_row(weight.dtype, weight.row(r), k, row.data());
      float largest = 0;
      bool finite = true;
      for (const float w : row) {
        largest = std::max(largest, std::fabs(w));
        finite &= std::isfinite(w);
      }
      const float scale = out.scales[r] = finite ? largest / kFloat8E4M3Max : NAN;
      for (int64_t i = 0; i < k; ++i) codes.row(r)[i] = to_float8_e4m3(scale == 0 ? 0.0f : row[i] / scale);
    }
  });
  for (int64_t r = 0; r < rows; ++r) {
    if (std::isnan(out.scales[r])) return corrupt("{}: row {} holds a NaN or an infinity", name, r);
  }
  return out;
}

SchemePtr fp8_scheme(Fp8Blocks blocks) { return std::make_shared<Stored>(blocks); }

SchemePtr fp8_in_flight_scheme() {
  static const auto scheme = std::make_shared<InFlight>();
  return scheme;
}

}  // namespace choral::quant
