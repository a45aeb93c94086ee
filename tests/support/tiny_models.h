// The models of tests/data/models, a folder and a family each. A test of every family takes them from here: a new family's model
// is tested as soon as it lies there.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/check.h"
#include "support/test_paths.h"

namespace choral::testing {

inline std::vector<std::string> tiny_models() {
  std::vector<std::string> names;
  for (const auto& folder : std::filesystem::directory_iterator(test_data("/models"))) {
    names.push_back(folder.path().filename().string());
    CHORAL_CHECK(names.back().starts_with("tiny-"), "a folder of tests/data/models is a tiny model");
  }
  std::sort(names.begin(), names.end());
  return names;
}

// "tiny-deepseek-v2" as GoogleTest may call it: "deepseek_v2".
inline std::string family_of(const std::string& model) {
  std::string name = model.substr(std::string("tiny-").size());
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace choral::testing
