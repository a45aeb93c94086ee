// W8A8 as ModelSlim writes it: y = (Σ q_x q_w + quant_bias) · deq_scale, where deq_scale is that of x times that of w and
// quant_bias = rint(bias / deq_scale − offset · Σ q_w). The matrix subtracts offset · Σ q_w itself; what is left of quant_bias is
// the layer's bias, in steps of deq_scale. The float bias beside it says the same and is not added again.
#include <bit>
#include <cmath>

#include "quant/integers/stored_vectors.h"
#include "quant/scheme.h"

namespace choral::quant {
namespace {

void add_channels(const LinearShape& shape, Parameter& parameter) {
  for_each_shard(shape, parameter, "." + parameter.name, [](int64_t out) { return Shape{out}; });
  for (Shard& shard : parameter.shards) shard.other_shapes = {Shape{shard.shape[0], 1}};
}

class ModelSlimStatic : public Scheme {
 public:
  std::string name() const override { return "W8A8"; }
  bool holds_bias() const override { return true; }

  void create_weights(const LinearShape& shape, ParameterSet& parameters) const override {
    storage_->create_weights(shape, parameters);
    for (const char* name : {"input_scale", "input_offset"}) {
      Parameter& one = parameters.add(name, StoredAs::kFloat);
      for_each_shard(shape, one, "." + one.name, [](int64_t) { return Shape{1}; });
    }
    add_channels(shape, parameters.add("deq_scale", StoredAs::kFloatOrInt64));
    add_channels(shape, parameters.add("quant_bias", StoredAs::kInt32));
    add_channels(shape, parameters.add("bias", StoredAs::kFloat, Presence::kOptional));  // quant_bias holds it
  }

  Result<PackedLayer> pack(const platform::Context& ctx, const WeightRequest&, const LinearShape& shape,
                           ParameterSet& parameters) const override {
    std::vector<IntegerWeight> weights;
    PackedLayer layer;
    for (size_t i = 0; i < shape.out.size(); ++i) {
      const auto stored = [&](std::string_view name) -> const Shard& { return parameters.get(name).shards[i]; };
      CHORAL_TRY(auto weight, storage_->read(ctx, shape, parameters, i));
      CHORAL_TRY(weight.scales, read_deq_scale(stored("deq_scale")));
      CHORAL_TRY(weight.input, read_input(stored("input_scale"), stored("input_offset")));
      const auto quant_bias = read_integers(stored("quant_bias"));
      for (int64_t r = 0; r < shape.out[i]; ++r) {
        const int64_t bias = quant_bias[r] + weight.input->offset * sum_of(weight.q.tensor, r);
        layer.bias.push_back(static_cast<float>(bias) * weight.scales[r]);
      }
      weights.push_back(std::move(weight));
    }
    CHORAL_TRY(layer.runs, pack_runs(ctx, *storage_, kernels::Activations::kInt8Rows, weights));
    return layer;
  }

 private:
  // Scales of w are optional: deq_scale takes their place.
  StoragePtr storage_ = modelslim_rows({.bits = 8}, ModelSlimBytes::kOne, Presence::kOptional);

  // int64 in checkpoints of fp16 models: the bits of a float32.
  static Result<std::vector<float>> read_deq_scale(const Shard& shard) {
    if (shard.tensor.view.dtype != DType::kI64) return read_scales(shard, shard.shape[0], 1);
    std::vector<float> scales;
    for (const int64_t bits : read_integers(shard)) {
      scales.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
      if (bits < 0 || bits > UINT32_MAX || !std::isfinite(scales.back())) {
        return corrupt("{} holds {}, which is not the bits of a float32 scale", shard.name, bits);
      }
    }
    return scales;
  }

  static Result<kernels::StaticQuant> read_input(const Shard& scale_shard, const Shard& offset_shard) {
    CHORAL_TRY(const auto scale, read_scales(scale_shard, 1, 1));
    CHORAL_TRY(const auto offset, read_scales(offset_shard, 1, 1));
    if (scale[0] <= 0) return corrupt("{} is {}; a scale is above 0", scale_shard.name, scale[0]);
    if (offset[0] != std::rint(offset[0]) || offset[0] < -128 || offset[0] > 127) {
      return corrupt("{} is {}; an offset is a whole number from -128 to 127", offset_shard.name, offset[0]);
    }
    return kernels::StaticQuant{.scale = scale[0], .offset = static_cast<int32_t>(offset[0])};
  }

  static int64_t sum_of(const TensorView& weight, int64_t row) {
    const auto* q = reinterpret_cast<const int8_t*>(weight.row(row));
    int64_t sum = 0;
    for (int64_t k = 0; k < weight.cols(); ++k) sum += q[k];
    return sum;
  }
};

}  // namespace

SchemePtr modelslim_static_scheme() { return std::make_shared<ModelSlimStatic>(); }

}  // namespace choral::quant
