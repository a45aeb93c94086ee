// Granite's mixtures: multipliers of embeddings, of q·k, of what blocks give and of logits, experts in every layer whose files
// hold them stacked, and in GraniteMoeShared an MLP beside them. The chosen experts' shares are a softmax of their logits alone.
#include "models/families.h"

namespace choral::models {
namespace {

Result<DecoderSpec> read_granite_moe_spec(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_decoder_spec(config, options));
  CHORAL_TRY(spec.qkv_bias, config.get_bool_or("attention_bias", false));
  spec.output_bias = spec.qkv_bias;
  CHORAL_RETURN_IF_ERROR(read_granite_multipliers(config, spec));
  CHORAL_TRY(spec.moe, read_moe_spec(config, spec.layers));
  spec.moe->block = "block_sparse_moe";
  spec.moe->names.router = "router";
  spec.moe->merged_gate_up = true;
  spec.moe->intermediate = spec.intermediate;
  spec.moe->gating.renormalise = true;
  spec.moe->layers.assign(spec.layers, true);
  return spec;
}

}  // namespace

Result<std::unique_ptr<Model>> make_granite_moe(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_granite_moe_spec(config, options));
  return make_decoder(std::move(spec), options);
}

Result<std::unique_ptr<Model>> make_granite_moe_shared(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_granite_moe_spec(config, options));
  CHORAL_TRY(spec.moe->shared_intermediate, config.get_int_or("shared_intermediate_size", 1024, {0, kDimension.max}));
  spec.moe->shared_block = "shared_mlp";
  spec.moe->shared_linears = true;
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
