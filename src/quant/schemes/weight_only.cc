// W8A16, W4A16: the weights are integers, x keeps its precision. --activations int8 rounds x too.
#include "quant/scheme.h"

namespace choral::quant {
namespace {

class WeightOnly : public Scheme {
 public:
  explicit WeightOnly(StoragePtr storage) : storage_(std::move(storage)) {}

  std::string name() const override { return fmt::format("W{}A16", storage_->bits()); }
  void create_weights(const LinearShape& shape, ParameterSet& parameters) const override {
    storage_->create_weights(shape, parameters);
  }
  int64_t expected_bytes(const WeightRequest&, const LinearShape& shape, const ParameterSet& parameters) const override {
    return storage_->expected_bytes(shape, parameters);
  }
  Result<PackedLayer> pack(const platform::Context& ctx, const WeightRequest& request, const LinearShape& shape,
                           ParameterSet& parameters) const override {
    CHORAL_TRY(auto runs, pack_members(ctx, shape, parameters, *storage_, request.activations));
    return PackedLayer{std::move(runs)};
  }

 private:
  StoragePtr storage_;
};

}  // namespace

SchemePtr weight_only_scheme(StoragePtr storage) { return std::make_shared<WeightOnly>(std::move(storage)); }

}  // namespace choral::quant
