// What the engine knows of a model: its sizes, one forward pass over a flat batch, logits of chosen rows.
// Built from a config by the registry; loaded through its modules; then immutable but for the KV cache binding.
// forward() is called by one thread at a time (the engine's).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "io/config_map.h"
#include "layers/embedding_layers.h"
#include "layers/fusion.h"
#include "layers/module.h"

namespace choral::models {

// What stands on the layers: a vocabulary's logits, scores of classes (…ForSequenceClassification), or nothing (…Model).
enum class HeadKind { kTokens, kClasses, kNone };
struct Head {
  HeadKind kind = HeadKind::kTokens;
  int64_t classes = 0;  // of kClasses
};

struct DecoderSpec;
struct Gemma4Spec;
// What a model was made of; lives as long as the model.
using ModelSpec = std::variant<const DecoderSpec*, const Gemma4Spec*>;

class Model {
 public:
  virtual ~Model() = default;

  virtual ModelSpec spec() const = 0;

  virtual std::vector<layers::KvShape> kv_shapes() const = 0;  // of each layer that has keys and values of its own
  virtual std::vector<layers::StateShape> state_shapes() const { return {}; }  // of each that keeps a state
  virtual int64_t hidden_size() const = 0;
  virtual int64_t vocab_size() const = 0;
  virtual Head head() const = 0;
  virtual const layers::EmbeddingLayers& embedding_layers() const = 0;
  virtual bool sees_later() const = 0;  // a token those after it too: all of a text is computed in one step
  virtual int64_t max_positions() const = 0;
  virtual std::span<layers::Module* const> modules() const = 0;
  virtual std::span<const lora::LoRATarget> lora_targets() const = 0;  // what adapters may change; a target's index is its place

  // Once, when every module is processed: fuses what the context's device has fused operators for. What was decided, and why.
  virtual std::vector<layers::FusionDecision> fuse(const platform::Context& ctx, const layers::FusionConfig& config) = 0;

  // By their places in kv_shapes() and in state_shapes(); a layer that looks at the keys of another is bound with it.
  virtual void bind_kv_cache(int64_t layer, const layers::KvBinding& binding) = 0;
  virtual void bind_state(int64_t, const kernels::StateView&) {}
  // hidden [tokens, hidden]: the last layer's output after the final norm.
  virtual void forward(const platform::Context& ctx, const layers::ForwardBatch& batch, MatrixView<float> hidden) const = 0;
  // Rows `rows` (ascending) of hidden, as forward() gave it for `batch` -> logits [rows, vocab], or wider by what rows' adapters
  // bring (layers::LogitsProcessor); of a head of classes [rows, classes]. Not of a model without a head.
  virtual void compute_logits(const platform::Context& ctx, const layers::ForwardBatch& batch, MatrixView<const float> hidden,
                              std::span<const int32_t> rows, MatrixView<float> logits) const = 0;
};

}  // namespace choral::models
