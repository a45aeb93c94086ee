#include "lora/peft/lora_layer_weights.h"

#include <vector>

namespace choral::lora {
namespace {

Result<AdapterTensor> scaled(const AdapterTensor& tensor, float factor) {
  CHORAL_TRY(Tensor out, to_float_tensor(tensor.view));
  for (float& value : out.as<float>()) value *= factor;
  return AdapterTensor(std::move(out));
}

}  // namespace

int64_t LoRALayerWeights::size_bytes() const {
  return lora_a.size_bytes() + lora_b.size_bytes() + bias.size_bytes() + embeddings_tensor.size_bytes() + magnitude.size_bytes();
}

Status LoRALayerWeights::optimize() {
  if (scaling == 1.0F) return {};
  CHORAL_TRY(AdapterTensor b, scaled(lora_b, scaling));
  if (!bias.empty()) {
    CHORAL_TRY(bias, scaled(bias, scaling));
  }
  lora_b = std::move(b);
  scaling = 1.0F;
  delta_ = nullptr;  // rounded in another order from now on
  return {};
}

Result<std::shared_ptr<const Tensor>> LoRALayerWeights::compute_delta_weight() {
  if (delta_) return delta_;
  CHORAL_TRY(Tensor a, to_float_tensor(lora_a.view));
  CHORAL_TRY(Tensor b, to_float_tensor(lora_b.view));
  const int64_t in = input_dim(), out = output_dim();
  CHORAL_TRY(Tensor delta, Tensor::allocate(DType::kF32, {in, out}));
  // B turned round so that the inner loop walks memory: row j of it is column j of B.
  std::vector<float> b_columns(static_cast<size_t>(rank * out));
  for (int64_t o = 0; o < out; ++o) {
    for (int64_t j = 0; j < rank; ++j)
      b_columns[static_cast<size_t>(j * out + o)] = b.as<float>()[static_cast<size_t>(o * rank + j)];
  }
  for (int64_t i = 0; i < in; ++i) {
    float* row = delta.as<float>().data() + i * out;
    for (int64_t j = 0; j < rank; ++j) {
      const float factor = a.as<float>()[static_cast<size_t>(j * in + i)];
      const float* column = b_columns.data() + j * out;
      for (int64_t o = 0; o < out; ++o) row[o] += factor * column[o];
    }
    for (int64_t o = 0; o < out; ++o) row[o] *= scaling;
  }
  auto result = std::make_shared<const Tensor>(std::move(delta));
  if (++delta_calls_ >= 2 && result->size_bytes() <= kMostKeptDeltaBytes) delta_ = result;
  return result;
}

}  // namespace choral::lora
