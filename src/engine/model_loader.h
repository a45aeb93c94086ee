// Loads what the user named as a model ready to run: resolve, open, read configs, build, load, pack. Each phase is reported, and
// every choice made for the user becomes a note.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "choral/llm.h"
#include "engine/pooling.h"
#include "io/config_map.h"
#include "io/model_location.h"
#include "models/model.h"
#include "platform/custom_op.h"
#include "platform/layer_overrides.h"
#include "platform/scheme_overrides.h"
#include "quant/weight_source.h"
#include "text/tokenizer.h"

namespace choral::engine {

// What the files say, before any weight is touched.
struct ModelFiles {
  std::string name;  // last part of the path, without extension
  std::string path;
  io::ModelLocation location;
  std::vector<std::string> base_names;  // all that the model is called: name, path, what the user wrote, what its files say
  io::ConfigMap config;
  io::ConfigMap generation_config;
  std::shared_ptr<const text::Tokenizer> tokenizer;  // null for a synthetic model
  std::vector<text::NamedTemplate> chat_templates;   // as the model has them, or the user's one
  Result<PooledForm> pooling = PooledForm();         // of embeddings, or why there are none
};

Result<ModelFiles> open_model_files(const EngineOptions& options);
// The same without tokenizer and templates: what config.json says (or a GGUF file), of which nothing else needs to be there.
Result<ModelFiles> open_model_config(const EngineOptions& options);
// Says what --kv-cache-dtype auto is for this model: float16, or float32 where vectors or classes are what it is for. Their texts
// leave the cache in a moment, and their numbers are compared to the last digits.
void settle_kv_dtype(const ModelFiles& files, EngineOptions& options);
// "LlamaForCausalLM"; empty when the config names none.
std::string architecture_of(const io::ConfigMap& config);

struct LoadedModel {
  std::unique_ptr<models::Model> model;
  std::vector<std::string> notes;
  int64_t weight_bytes = 0;
  int64_t parameters = 0;
};

// How the model is built, besides its config.
struct ModelForms {
  platform::CustomOpConfig custom_ops = {};
  platform::LayerOverrides overrides = {};
  layers::FusionConfig fusion = {};
  std::string quantization = "auto";  // quant/quant_config.h
  platform::SchemeOverrides schemes = {};
  layers::Ranks ranks = {};
  bool strict = false;  // a checkpoint that is not computed just as it says is an error
};

struct BuiltModel {
  std::unique_ptr<models::Model> model;
  std::vector<std::string> notes;  // what was decided about its weights
};

// The model of `config` in the forms of `session`, without weights: what it computes and what adapters may change. The one place
// where a model is made, whether to run or to be looked at. `max_model_len`: as models::ModelOptions has it.
Result<BuiltModel> build_model(const io::ConfigMap& config, platform::Session& session, const ModelForms& forms,
                               quant::HasTensor has_tensor, int64_t max_model_len = 0);

// A model with every tensor that its layers want, none of which is packed.
struct FoundModel {
  std::unique_ptr<models::Model> model;
  std::vector<std::string> notes;
  int64_t expected_bytes = 0;  // of the packed weights, padding apart
};

// Builds the model of `config` and finds the weights of `source`. A source that changed meanwhile is kUnavailable.
Result<FoundModel> find_weights(const io::ConfigMap& config, platform::Session& session, quant::WeightSource& source,
                                int64_t max_model_len, const ModelForms& forms);
// Packs them for the context's device. Everything of the source is copied: it is not read once this returns. A source that
// changed meanwhile is kUnavailable.
Result<LoadedModel> pack_weights(const platform::Context& ctx, FoundModel found, quant::WeightSource& source,
                                 const layers::FusionConfig& fusion, const std::function<void(const LoadProgress&)>& on_progress);

// --dtype: auto | float32 | bfloat16 | float16; --activations: auto | 16bit | int8.
Result<quant::WeightRequest> parse_weight_request(std::string_view dtype, std::string_view activations);

// `config`, or, where it calls the model tied and the file holds a head that differs from the table, one that does not: then the
// file's head multiplies, as in transformers from version 5 on, and a note says so.
Result<io::ConfigMap> with_own_head(const io::ConfigMap& config, quant::WeightSource& source, std::vector<std::string>& notes);

// Fails when the file holds tensors of this model's layers that were not used; others become one note.
Status check_untaken(const std::vector<std::string>& names, const io::ConfigMap& config, std::vector<std::string>& notes);

}  // namespace choral::engine
