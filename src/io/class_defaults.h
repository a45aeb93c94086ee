// What a model's configuration class in transformers takes for a field that its file lacks. Files leave out what equals it.
#pragma once

#include "io/config_map.h"

namespace choral::io {

// The config with its class's fields where it has none; a null stays one. Of a class that is not known here: `config`.
ConfigMap with_class_defaults(const ConfigMap& config);

}  // namespace choral::io
