// A GGUF file that is to be written, read as its readers will read it, before any weight is: what they would make of it must be
// the model that it is made of. So a number that GGUF has no key for, or whose key was forgotten, is an error that names it.
#pragma once

#include <span>
#include <string>
#include <variant>
#include <vector>

#include "models/decoder.h"
#include "models/gemma4_model.h"
#include "tools/quantize/float_model.h"
#include "tools/quantize/gguf_keys.h"

namespace choral::tools {

// What the model of a configuration is made of.
class OwnedSpec {
 public:
  static Result<OwnedSpec> read(const io::ConfigMap& config);
  models::ModelSpec view() const;
  const models::DecoderSpec& decoder() const;

 private:
  std::variant<models::DecoderSpec, models::Gemma4Spec> spec_;
};

struct GgufPreview {
  const GgufKeys& keys;
  std::span<const io::TensorToCome> tensors;  // first those of the keys
  std::vector<std::string> sources;           // what the others are made of
};
Status check_read_back(const FloatModel& model, const OwnedSpec& spec, const GgufPreview& preview);

}  // namespace choral::tools
