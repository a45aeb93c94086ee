// Models that also see: a checkpoint's half for text, as a model of its own. Known to io and to the reader of adapters. Pure; any
// thread.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "io/config_map.h"

namespace choral::io {

// "language_model.model.layers.3.…" and "model.language_model.layers.3.…" -> "model.layers.3.…"; another name as it is.
std::string text_half_name(std::string_view name);
// The other way, in the spelling of `like`, a name of the whole model's: "model.layers.3" -> "language_model.model.layers.3".
std::string whole_model_name(std::string_view name, std::string_view like);

// Of a class that also sees, as Gemma3ForConditionalGeneration: text_config as the config.json of the class for text, with what
// its class takes for absent fields, and what stands beside it of both halves. Of another class: `config`.
Result<ConfigMap> text_half_config(const ConfigMap& config);

}  // namespace choral::io
