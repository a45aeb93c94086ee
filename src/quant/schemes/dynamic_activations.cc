// W8A8_DYNAMIC, W4A8_DYNAMIC: each row of x is rounded to int8 with a scale of its own, as it comes.
#include "quant/scheme.h"

namespace choral::quant {
namespace {

class DynamicActivations : public Scheme {
 public:
  explicit DynamicActivations(StoragePtr storage) : storage_(std::move(storage)) {}

  std::string name() const override { return fmt::format("W{}A8_DYNAMIC", storage_->bits()); }
  void create_weights(const LinearShape& shape, ParameterSet& parameters) const override {
    storage_->create_weights(shape, parameters);
  }
  int64_t expected_bytes(const WeightRequest&, const LinearShape& shape, const ParameterSet& parameters) const override {
    return storage_->expected_bytes(shape, parameters);
  }
  Result<PackedLayer> pack(const platform::Context& ctx, const WeightRequest&, const LinearShape& shape,
                           ParameterSet& parameters) const override {
    CHORAL_TRY(auto runs, pack_members(ctx, shape, parameters, *storage_, kernels::Activations::kInt8Rows));
    return PackedLayer{std::move(runs)};
  }

 private:
  StoragePtr storage_;
};

}  // namespace

SchemePtr dynamic_scheme(StoragePtr storage) { return std::make_shared<DynamicActivations>(std::move(storage)); }

}  // namespace choral::quant
