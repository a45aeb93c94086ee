// Granite's mixtures: multipliers of embeddings, of q·k, of what blocks give and of logits, experts in every layer whose files
// hold them stacked, and in GraniteMoeShared an MLP beside them. The chosen experts' shares are a softmax of their logits alone.
#include "models/families.h"

namespace choral::models {

Result<MoeSpec> read_granite_mixture(const io::ConfigMap& config, const DecoderSpec& spec) {
  CHORAL_TRY(auto moe, read_moe_spec(config, spec.layers));
  moe.block = "block_sparse_moe";
  moe.names.router = "router";
  moe.merged_gate_up = true;
  moe.intermediate = spec.intermediate;
  moe.gating.renormalise = true;
  moe.layers.assign(spec.layers, true);
  return moe;
}

void add_granite_shared_mlp(int64_t intermediate, MoeSpec& moe) {
  moe.shared_intermediate = intermediate;
  moe.shared_block = "shared_mlp";
  moe.shared_linears = true;
}

Result<std::unique_ptr<Model>> make_granite_moe(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_granite_spec(config, options));
  CHORAL_TRY(spec.moe, read_granite_mixture(config, spec));
  return make_decoder(std::move(spec), options);
}

Result<std::unique_ptr<Model>> make_granite_moe_shared(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_granite_spec(config, options));
  CHORAL_TRY(spec.moe, read_granite_mixture(config, spec));
  CHORAL_TRY(const int64_t shared, config.get_int_or("shared_intermediate_size", 1024, {0, kDimension.max}));
  add_granite_shared_mlp(shared, *spec.moe);
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
