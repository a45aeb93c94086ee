#include "lora/store/delta_norm.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

namespace choral::lora {
namespace {

// gram[i, j] += v[i]·v[j] for j >= i, of one row v of B.
void add_outer_product(std::span<const float> v, std::vector<double>& gram) {
  const size_t rank = v.size();
  for (size_t i = 0; i < rank; ++i) {
    const double factor = v[i];
    double* row = gram.data() + i * rank;
    for (size_t j = i; j < rank; ++j) row[j] += factor * v[j];
  }
}

double dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t k = 0; k < a.size(); ++k) sum += double{a[k]} * b[k];
  return sum;
}

}  // namespace

// ‖B·A‖² = Σ (BᵀB ∘ A·Aᵀ)
Result<double> delta_norm(const LoRALayerWeights& layer) {
  CHORAL_TRY(const Tensor a, to_float_tensor(layer.lora_a.view));
  CHORAL_TRY(const Tensor b, to_float_tensor(layer.lora_b.view));
  const auto rank = static_cast<size_t>(layer.rank), in = static_cast<size_t>(layer.input_dim());
  const std::span<const float> of_a = a.as<float>(), of_b = b.as<float>();
  std::vector<double> gram(rank * rank);
  for (size_t row = 0; row < static_cast<size_t>(layer.output_dim()); ++row)
    add_outer_product(of_b.subspan(row * rank, rank), gram);
  double square = 0;
  for (size_t i = 0; i < rank; ++i) {
    for (size_t j = i; j < rank; ++j)
      square += (i == j ? 1 : 2) * gram[i * rank + j] * dot(of_a.subspan(i * in, in), of_a.subspan(j * in, in));
  }
  return std::abs(double{layer.scaling}) * std::sqrt(std::max(square, 0.0));  // the parts of a zero may not quite cancel out
}

}  // namespace choral::lora
