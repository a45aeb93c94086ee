// A model from a configuration's text alone, for tests of what families build and refuse.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "models/registry.h"
#include "platform/cpu_context_test.h"

namespace choral::models {

class ModelsTest : public ::testing::Test {
 protected:
  static io::ConfigMap config(const std::string& json) { return *io::ConfigMap::parse_json(json, "config.json"); }
  Result<std::unique_ptr<Model>> make(const std::string& json) { return make_model(config(json), options_); }

  platform::testing::CpuContext cpu_;
  std::unique_ptr<quant::QuantConfig> quant_config_ = *quant::make_quant_config({}, "auto");
  platform::CustomOpConfig custom_ops_;
  platform::LayerOverrides overrides_;
  ModelOptions options_{cpu_.session(), *quant_config_, custom_ops_, overrides_, 0};
};

// Columns of what adapters know by a name, of its first part.
inline std::map<std::string, int64_t> outputs_of(const Result<std::unique_ptr<Model>>& model) {
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  std::map<std::string, int64_t> outputs;
  if (!model.ok()) return outputs;
  for (const auto& target : (*model)->lora_targets()) outputs[target.name] = target.members.empty() ? 0 : target.members[0].out;
  return outputs;
}

}  // namespace choral::models
