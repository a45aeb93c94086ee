// Shapes for benches: the configurations of well-known models under short names, without their weights.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/config_map.h"

namespace choral::synthetic {

// "llama-1b"; an unknown name is an error that lists those there are.
Result<io::ConfigMap> model_config(std::string_view name);
std::vector<std::string> model_names();

}  // namespace choral::synthetic
