// The state cache of a model: for each layer that keeps a state of a sequence (layers::StateShape) an array of slots, bound to
// it. Float32, in the host's memory on every device. A page costs memory only once it is written. The worker makes it once; the
// scheduler deals in slot numbers.
#pragma once

#include <vector>

#include "models/model.h"
#include "tensor/tensor.h"

namespace choral::engine {

// Of one sequence.
int64_t state_bytes(const models::Model& model);

class StatePool {
 public:
  static Result<StatePool> make(models::Model& model, int32_t slots);

  int64_t size_bytes() const;

 private:
  std::vector<Tensor> layers_;
};

}  // namespace choral::engine
