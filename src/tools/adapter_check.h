// Whether adapters can be served, as the engine would decide it: by their files alone, or with a model also whether they fit it.
#pragma once

#include <memory>
#include <string>

#include "choral/llm.h"
#include "lora/store/adapter_report.h"

namespace choral::tools {

class AdapterChecker {
 public:
  // Of the options: the model (may be empty), what adapters may be, `strict`. Of the model's weights none is read before a check
  // needs some of their rows.
  static Result<std::unique_ptr<AdapterChecker>> make(const EngineOptions& options);
  virtual ~AdapterChecker() = default;

  // Never fails: what is wrong stands in the report.
  virtual lora::AdapterReport check(const std::string& path) const = 0;
  // Whether its shapes fit the model, of which there must be one; no value is read.
  virtual Status check_fit(const std::string& path) const = 0;
  virtual const std::string& model_name() const = 0;  // empty: no model was given
};

}  // namespace choral::tools
