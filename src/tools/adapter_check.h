// Whether adapters can be served, as the engine would decide it: by their files alone, or with a model also whether they fit it,
// for which its config.json is enough.
// Immutable once made.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "choral/llm.h"
#include "io/checkpoint.h"
#include "lora/store/adapter_check.h"
#include "models/model.h"
#include "platform/platform.h"

namespace choral::tools {

class AdapterChecker {
 public:
  // Of the options: the model (may be empty), what adapters may be, `strict`. Of the model's weights none is read before a check
  // needs some of their rows.
  static Result<std::unique_ptr<AdapterChecker>> make(const EngineOptions& options);

  // Never fails: what is wrong stands in the report.
  lora::AdapterReport check(const std::string& path) const { return lora::check_adapter(path, check_); }
  // Whether its shapes fit the model, of which there must be one; no value is read.
  Status check_fit(const std::string& path) const { return lora::check_fit(path, check_); }
  // All that the model is called, its name first; empty: no model was given.
  const std::vector<std::string>& base_names() const { return check_.base_names; }
  // A model of which only config.json is here: what needs rows of its weights (DoRA's norms) was not looked at.
  bool knows_config_alone() const { return model_ != nullptr && checkpoint_ == nullptr; }

 private:
  Status set(const EngineOptions& options);
  Status open_model(const EngineOptions& options);

  // What a model offers to adapters, from its headers: weights are read only where a target is asked for a row.
  ThreadPool pool_{1};
  std::unique_ptr<platform::Session> session_;
  std::unique_ptr<models::Model> model_;
  std::shared_ptr<const io::Checkpoint> checkpoint_;  // null: it is not here
  std::vector<lora::LoRATarget> targets_;
  lora::AdapterCheckOptions check_;
};

}  // namespace choral::tools
