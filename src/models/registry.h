// From config.json's `architectures` to a model. A family is one file with one line in the registry's table.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/model.h"

namespace choral::models {

struct ModelOptions {
  platform::Session& session;
  const quant::QuantConfig& quant_config;
  const platform::CustomOpConfig& custom_ops;
  const platform::LayerOverrides& overrides;
  int64_t max_model_len = 0;  // 0 = what the config says; rotary tables are made up to here
  layers::Ranks ranks = {};
  Head head = {};  // make_model() reads it from the architecture's name
};

// `config` is the normalised map of io::load_model_config. Of each known architecture, "XForCausalLM", "XModel" and
// "XForSequenceClassification" are known too. Others are an error that lists the known ones.
Result<std::unique_ptr<Model>> make_model(const io::ConfigMap& config, const ModelOptions& options);

std::vector<std::string> known_architectures();

}  // namespace choral::models
