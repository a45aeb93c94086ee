#include "engine/state_pool.h"

namespace choral::engine {

int64_t state_bytes(const models::Model& model) {
  int64_t floats = 0;
  for (const auto& shape : model.state_shapes()) floats += shape.floats();
  return floats * static_cast<int64_t>(sizeof(float));
}

Result<StatePool> StatePool::make(models::Model& model, int32_t slots) {
  StatePool pool;
  const auto shapes = model.state_shapes();
  for (size_t layer = 0; layer < shapes.size(); ++layer) {
    CHORAL_TRY(auto array, Tensor::allocate(DType::kF32, {slots, shapes[layer].floats()}));
    model.bind_state(static_cast<int64_t>(layer), {array.as<float>().data(), slots, shapes[layer].floats()});
    pool.layers_.push_back(std::move(array));
  }
  return pool;
}

int64_t StatePool::size_bytes() const {
  int64_t total = 0;
  for (const auto& array : layers_) total += array.size_bytes();
  return total;
}

}  // namespace choral::engine
