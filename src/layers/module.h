// A part of a model that owns stored tensors, and the builder that hands every part what it needs.
// Three times, in this order: built (shapes known, parameters registered), loaded (tensors pulled from the source),
// processed (packed for the platform, the file's pages given back). Forward only after all three.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layers/rank_share.h"
#include "lora/target.h"
#include "platform/custom_op.h"
#include "platform/layer_overrides.h"
#include "quant/quant_config.h"

namespace choral::layers {

// How a module multiplies by its weight, and why so.
struct ProductForm {
  std::string scheme;  // "W8A8_DYNAMIC"
  std::string kernel;
  std::string why;  // "--quantization w8a8_dynamic"
};

class Module {
 public:
  virtual ~Module() = default;
  virtual Status load_weights(quant::WeightSource& source) = 0;
  virtual Status process_weights_after_loading(const platform::Context& ctx, quant::WeightSource& source) = 0;

  virtual std::string prefix() const = 0;  // "model.layers.0.mlp.down_proj"
  // What weight_bytes() will be, padding apart: asked between the second time and the third.
  virtual int64_t expected_bytes(const quant::WeightRequest& request) const = 0;
  virtual int64_t weight_bytes() const = 0;           // as held in memory, after processing
  virtual int64_t mapped_bytes() const { return 0; }  // of weights that stay in their file, beside those
  virtual int64_t parameters() const = 0;             // weights as numbers
  virtual std::string format() const = 0;             // "bf16"
  virtual std::string kernel_name(CpuLevel level) const = 0;
  virtual std::optional<ProductForm> product_form(CpuLevel) const { return std::nullopt; }  // none: it multiplies by none
};

// Passed by reference through a model's constructors. The first error stays; building goes on and is checked once at the end.
struct Builder {
  platform::Session& session;
  const quant::QuantConfig& quant_config;
  const platform::CustomOpConfig& custom_ops;
  const platform::LayerOverrides& overrides;
  Ranks ranks = {};
  std::vector<Module*> modules = {};  // every module in order of construction; owned by the model
  Status status = {};
  std::vector<lora::LoRATarget> lora_targets = {};  // what adapters may change

  // A layer by its spec: the class that overrides it, or its own.
  template <class Layer>
  std::unique_ptr<Layer> make(const typename Layer::Spec& spec) {
    if (const auto* factory = overrides.find<Layer, Builder>()) return (*factory)(*this, spec);
    return std::make_unique<Layer>(*this, spec);
  }

  void fail(Status error) {
    if (status.ok()) status = std::move(error);
  }
  // The index by which the adapter's share of this layer is found.
  int add_lora_target(lora::LoRATarget target) {
    lora_targets.push_back(std::move(target));
    return static_cast<int>(lora_targets.size()) - 1;
  }
};

}  // namespace choral::layers
