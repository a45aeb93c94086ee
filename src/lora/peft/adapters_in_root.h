// Which adapters a root has: what can be listed before anybody has used it. Whether a request may have one of them, and whether
// it can be loaded, is asked with adapter_in_root() and by loading it. Safe on any thread.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace choral::lora {

// An adapter that a name leads to.
struct FoundAdapter {
  std::string name;
  std::string path;
};
// Folders of `root` that hold an adapter, also one level deeper ("team/sql"); sorted. An error when `root` cannot be read.
Result<std::vector<FoundAdapter>> adapters_in_root(const std::string& root);

}  // namespace choral::lora
