// Lists the adapters of a root before any of them is used. Whether a request may name one is asked with adapter_in_root();
// whether it can be loaded shows when it is. Safe on any thread.
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
