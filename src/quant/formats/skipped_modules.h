// modules_to_not_convert and ignored_layers of a quantization_config, read as transformers does: an entry is a regular expression
// that matches from a name's start up to the end of a component, so whole names and prefixes too, or the end of the name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/config_map.h"
#include "io/module_pattern.h"

namespace choral::quant {

class SkippedModules {
 public:
  // Adds the entries of a list, if there is one.
  Status read(const io::ConfigMap& config, std::string_view key);
  Result<bool> match(std::string_view module) const;

 private:
  struct Entry {
    std::string text;
    io::ModulePattern pattern;
  };
  std::vector<Entry> entries_;
};

}  // namespace choral::quant
