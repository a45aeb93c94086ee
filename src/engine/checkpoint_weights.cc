#include "engine/checkpoint_weights.h"

namespace choral::engine {

Result<io::SourceTensor> CheckpointWeights::take(const std::string& name, const Shape& shape) {
  CHORAL_TRY(auto tensor, checkpoint_->find(name));
  if (tensor.view.shape != shape) {
    return corrupt("{}: tensor {} has shape {}, but the model's configuration needs {}", checkpoint_->description(), name,
                   tensor.view.shape.to_string(), shape.to_string());
  }
  taken_.insert(name);
  return tensor;
}

std::vector<std::string> CheckpointWeights::untaken() const {
  std::vector<std::string> names;
  for (const auto& name : checkpoint_->names()) {
    if (!taken_.contains(name)) names.push_back(name);
  }
  return names;
}

}  // namespace choral::engine
