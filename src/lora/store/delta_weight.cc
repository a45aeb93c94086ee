#include "lora/store/delta_weight.h"

#include <vector>

namespace choral::lora {
namespace {

Result<Tensor> scaled_b(const LoRALayerWeights& layer) {
  CHORAL_TRY(Tensor b, to_float_tensor(layer.lora_b.view));
  for (float& value : b.as<float>()) value *= layer.scaling;
  return b;
}

// Its own A is never read.
Result<kernels::LoRAMatrix> expander_of(const LoRALayerWeights& layer) {
  const int64_t in = layer.input_dim(), rank = layer.rank;
  CHORAL_TRY(const Tensor a, to_float_tensor(layer.lora_a.view));
  CHORAL_TRY(Tensor turned, Tensor::allocate(DType::kF32, {in, rank}));
  const auto from = a.as<float>();
  const auto to = turned.as<float>();
  for (int64_t r = 0; r < rank; ++r) {
    for (int64_t k = 0; k < in; ++k) to[k * rank + r] = from[r * in + k];
  }
  const std::vector<float> unread(rank);
  const kernels::LoRASliceSource slice{.a = {std::as_bytes(std::span(unread)).data(), DType::kF32, {rank, 1}, kCpuDevice},
                                       .b = turned.view()};
  return kernels::LoRAMatrix::pack({.in = 1, .out = in, .slices = {&slice, 1}}, kernels::LoRAFormat::kF32);
}

}  // namespace

Result<DeltaWeight> DeltaWeight::of(const LoRALayerWeights& layer) {
  CHORAL_TRY(Tensor b, scaled_b(layer));
  CHORAL_TRY(kernels::LoRAMatrix a, expander_of(layer));
  return DeltaWeight(std::move(b), std::move(a));
}

void DeltaWeight::compute_delta_weight(CpuLevel level, int64_t first, MatrixView<float> w) const {
  const kernels::LoRATerm term{&expander_, scaled_b_.as<float>().data() + first * scaled_b_.shape()[1]};
  kernels::lora_expand(level, {&term, 1}, 0, w);
}

}  // namespace choral::lora
