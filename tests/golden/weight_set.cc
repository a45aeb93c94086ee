#include "golden/weight_set.h"

#include "base/float16.h"
#include "io/checkpoint.h"
#include "io/safetensors_writer.h"
#include "kernels/quant/dequantise.h"

namespace choral::golden {

Result<WeightSet> read_weights(const std::filesystem::path& model) {
  CHORAL_TRY(const auto checkpoint, io::Checkpoint::open(model));
  WeightSet weights;
  for (const auto& name : checkpoint->names()) {
    CHORAL_TRY(const auto tensor, checkpoint->find(name));
    const auto& view = tensor.view;
    Matrix& m = weights[name];
    m.shape.assign(view.shape.dims().begin(), view.shape.dims().end());
    m.values.resize(view.shape.elements());
    std::vector<float> stored(m.values.size());
    for (int64_t r = 0; r < view.rows(); ++r) {
      kernels::dequantise_row(view.dtype, view.row(r), view.cols(), stored.data() + r * view.cols());
    }
    for (int64_t r = 0; r < view.rows(); ++r) {
      for (int64_t c = 0; c < view.cols(); ++c) {
        m.values[r * view.cols() + c] = stored[tensor.transposed ? c * view.rows() + r : r * view.cols() + c];
      }
    }
  }
  return weights;
}

Status write_weights(const std::filesystem::path& file, const WeightSet& weights) {
  std::vector<io::TensorToWrite> tensors;
  for (const auto& [name, m] : weights) {
    tensors.push_back({name, {std::as_bytes(std::span(m.values)).data(), DType::kF32, Shape(m.shape), kCpuDevice}});
  }
  return io::write_safetensors(file, tensors, {{"format", "pt"}});
}

Matrix random_matrix(std::vector<int64_t> shape, float bound, uint32_t seed) {
  Matrix m{std::move(shape), {}};
  m.values.resize(m.rows() * m.cols());
  uint32_t state = seed * 2654435761u + 1;
  for (float& x : m.values) {
    state = state * 1664525u + 1013904223u;
    x = to_float(to_bfloat16((static_cast<float>(state >> 8) * 0x1p-23f - 1.0f) * bound));
  }
  return m;
}

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix y{{a.rows(), b.cols()}, std::vector<float>(a.rows() * b.cols())};
  for (int64_t i = 0; i < a.rows(); ++i) {
    for (int64_t j = 0; j < b.cols(); ++j) {
      double sum = 0;
      for (int64_t k = 0; k < a.cols(); ++k) sum += static_cast<double>(a.at(i, k)) * b.at(k, j);
      y.at(i, j) = static_cast<float>(sum);
    }
  }
  return y;
}

}  // namespace choral::golden
