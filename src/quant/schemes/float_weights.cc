// FLOAT: W as the checkpoint stores it (bf16, f16, f32 or GGUF blocks), or rounded to --dtype. Shards of one stored type become
// one packed matrix; where types differ (Q4_K_M mixes Q4_K and Q6_K) each run keeps its own.
#include "quant/scheme.h"
#include "quant/shards.h"

namespace choral::quant {
namespace {

class FloatWeights : public Scheme {
 public:
  std::string name() const override { return ""; }
  void create_weights(const LinearShape& shape, ParameterSet& parameters) const override {
    add_weight(shape, StoredAs::kFloatOrBlocks, parameters);
  }

  int64_t expected_bytes(const WeightRequest& request, const LinearShape& shape, const ParameterSet& parameters) const override {
    return request.as_stored ? parameters.stored_bytes() : shape.out_total() * row_bytes(request.convert_to, shape.in);
  }

  Result<PackedLayer> pack(const platform::Context& ctx, const WeightRequest& request, const LinearShape&,
                           ParameterSet& parameters) const override {
    const auto& shards = parameters.get("weight").shards;
    std::vector<PackedRun> runs;
    int64_t begin = 0;
    for (size_t i = 0; i < shards.size();) {
      std::vector<kernels::WeightRows> rows;
      std::vector<Tensor> turned;
      const DType stored = shards[i].tensor.view.dtype;
      for (; i < shards.size() && shards[i].tensor.view.dtype == stored; ++i) {
        CHORAL_TRY(const auto view, as_rows(ctx, shards[i].tensor, turned.emplace_back()));
        rows.push_back({view, shards[i].tensor.row_order});
      }
      const DType format = request.as_stored ? stored : request.convert_to;
      auto packed = ctx.session.prepack(ctx, {.rows = rows, .format = format, .activations = request.activations});
      if (!packed.ok()) return std::move(packed).status().while_(shards[i - 1].name);
      runs.push_back({begin, std::move(*packed)});
      begin += runs.back().matrix->n();
    }
    return PackedLayer{std::move(runs)};
  }
};

}  // namespace

SchemePtr float_scheme() {
  static const auto scheme = std::make_shared<FloatWeights>();
  return scheme;
}

}  // namespace choral::quant
