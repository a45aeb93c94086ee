// W8A8: x is rounded to int8 with one scale and offset, known from calibration. Members of a fused layer that were calibrated
// apart are multiplied apart, each with its own int8 of x, as the checkpoint's author measured them.
#include "quant/integers/stored_vectors.h"
#include "quant/scheme.h"

namespace choral::quant {
namespace {

class StaticActivations : public Scheme {
 public:
  StaticActivations(StoragePtr storage, bool symmetric) : storage_(std::move(storage)), symmetric_(symmetric) {}

  std::string name() const override { return fmt::format("W{}A8", storage_->bits()); }
  void create_weights(const LinearShape& shape, ParameterSet& parameters) const override {
    storage_->create_weights(shape, parameters);
    add_ones(shape, parameters.add("input_scale", StoredAs::kFloat), ".input_scale");
    if (!symmetric_) add_ones(shape, parameters.add("input_zero_point", StoredAs::kInt8), ".input_zero_point");
  }
  int64_t expected_bytes(const WeightRequest&, const LinearShape& shape, const ParameterSet& parameters) const override {
    return storage_->expected_bytes(shape, parameters);
  }

  Result<PackedLayer> pack(const platform::Context& ctx, const WeightRequest&, const LinearShape& shape,
                           ParameterSet& parameters) const override {
    std::vector<IntegerWeight> weights;
    for (size_t i = 0; i < shape.out.size(); ++i) {
      CHORAL_TRY(auto weight, storage_->read(ctx, shape, parameters, i));
      const Shard& shard = parameters.get("input_scale").shards[i];
      CHORAL_TRY(const auto scale, read_scales(shard, 1, 1));
      if (scale[0] <= 0) return corrupt("{} is {}; a scale is above 0", shard.name, scale[0]);
      const int32_t offset = symmetric_ ? 0 : read_zeros(parameters.get("input_zero_point").shards[i], 1, 1)[0];
      weight.input = kernels::StaticQuant{.scale = scale[0], .offset = offset};
      for (float& s : weight.scales) s *= scale[0];  // of the product
      weights.push_back(std::move(weight));
    }
    CHORAL_TRY(auto runs, pack_runs(ctx, *storage_, kernels::Activations::kInt8Rows, weights));
    return PackedLayer{std::move(runs)};
  }

 private:
  static void add_ones(const LinearShape& shape, Parameter& parameter, std::string_view suffix) {
    for_each_shard(shape, parameter, suffix, [](int64_t) { return Shape{1}; });
    for (Shard& shard : parameter.shards) shard.other_shapes = {Shape{}};
  }

  StoragePtr storage_;
  bool symmetric_;
};

}  // namespace

SchemePtr static_scheme(StoragePtr storage, bool symmetric_input) {
  return std::make_shared<StaticActivations>(std::move(storage), symmetric_input);
}

}  // namespace choral::quant
