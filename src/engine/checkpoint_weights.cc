#include "engine/checkpoint_weights.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace choral::engine {

Result<io::SourceTensor> CheckpointWeights::take_any_of(const std::string& name, std::span<const Shape> shapes) {
  CHORAL_TRY(auto tensor, checkpoint_->find(name));
  if (std::find(shapes.begin(), shapes.end(), tensor.view.shape) == shapes.end()) {
    std::vector<std::string> wanted;
    for (const Shape& shape : shapes) wanted.push_back(shape.to_string());
    return corrupt("{}: tensor {} has shape {}, but the model's configuration needs {}", checkpoint_->description(), name,
                   tensor.view.shape.to_string(), fmt::join(wanted, " or "));
  }
  taken_.insert(name);
  return tensor;
}

std::vector<std::string> CheckpointWeights::untaken() const {
  std::vector<std::string> names;
  for (const auto& name : checkpoint_->names()) {
    const auto begins = [&name](const std::string& beginning) { return name.starts_with(beginning); };
    if (!taken_.contains(name) && std::none_of(ignored_.begin(), ignored_.end(), begins)) names.push_back(name);
  }
  return names;
}

}  // namespace choral::engine
