// Which scheme serves which layer: made once a model from its files and the user's wish. A checkpoint's description is one file
// in formats/.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/config_map.h"
#include "platform/scheme_overrides.h"
#include "quant/scheme.h"

namespace choral::quant {

// kAbsorbed: a linear layer whose product is moved elsewhere (latent attention's kv_b_proj). Checkpoints have it as any other; it
// is multiplied as floats, whatever it is stored in.
enum class LayerKind { kLinear, kEmbedding, kLmHead, kRouter, kAbsorbed };
inline bool is_linear(LayerKind kind) { return kind == LayerKind::kLinear || kind == LayerKind::kAbsorbed; }
std::string_view layer_kind_name(LayerKind kind);  // "linear"
std::vector<std::string_view> layer_kind_names();

class QuantConfig {
 public:
  virtual ~QuantConfig() = default;
  // What was decided for the user.
  virtual std::vector<std::string> notes() const { return {}; }
  // The scheme of one layer as the checkpoint has it: "model.layers.0.self_attn.q_proj". The same object for all layers that may
  // be computed as one.
  virtual Result<LayerScheme> scheme_for(LayerKind kind, std::string_view layer) const = 0;
  // That of layers stored as `qweight`, where the format has such; else null.
  virtual SchemePtr packed_scheme() const { return nullptr; }

  // The method of a layer, whose members must have one scheme.
  virtual Result<std::unique_ptr<LinearMethod>> get_quant_method(LayerKind kind, const LinearShape& shape) const;
};

// --quantization: "auto", the checkpoint as it is, or one of in_flight_names() for a float checkpoint's linear layers.
Status check_quantization(std::string_view wish);
std::vector<std::string> in_flight_names();

// Whether the checkpoint holds a tensor of that name. None: it is not looked at, and its description is believed.
using HasTensor = std::function<bool(const std::string& name)>;

// For a model of `config` and a wish, on a platform that brings `overrides`: schemes in the place of those here, which may also
// be wished for under names of their own.
Result<std::unique_ptr<QuantConfig>> make_quant_config(const io::ConfigMap& config, std::string_view wish,
                                                       const platform::SchemeOverrides& overrides = {},
                                                       HasTensor has_tensor = nullptr);

}  // namespace choral::quant
