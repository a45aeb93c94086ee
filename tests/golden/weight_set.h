// A small model's or adapter's tensors as plain floats, read from and written to files: the oracle of adapter kinds folds an
// adapter into these by the definition and lets the engine run the result as an ordinary model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace choral::golden {

struct Matrix {
  std::vector<int64_t> shape;  // one or two dimensions
  std::vector<float> values;

  int64_t rows() const { return shape[0]; }
  int64_t cols() const { return shape.size() == 2 ? shape[1] : 1; }
  float& at(int64_t r, int64_t c = 0) { return values[r * cols() + c]; }
  float at(int64_t r, int64_t c = 0) const { return values[r * cols() + c]; }
};

using WeightSet = std::map<std::string, Matrix>;

// Every tensor of a checkpoint.
Result<WeightSet> read_weights(const std::filesystem::path& model);
Status write_weights(const std::filesystem::path& file, const WeightSet& weights);

// Values in ±bound that depend on `seed` only, exact in bfloat16.
Matrix random_matrix(std::vector<int64_t> shape, float bound, uint32_t seed);
// a [m, k] · b [k, n]
Matrix product(const Matrix& a, const Matrix& b);

}  // namespace choral::golden
