// Weights of every form for tests: stored bytes as a file has them, W as the ABI's text says it, and the packed image.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernel_testing.h"

namespace choral_cuda {

struct TestWeight {
  std::string name;
  int32_t stored_dtype = CHORAL_F32, dtype = CHORAL_F32;
  int32_t bits = 8, codebook = CHORAL_LINEAR, activations = CHORAL_X_FULL;
  int64_t group = 0;
  bool has_scales = false, has_zeros = false, has_k_order = false, has_fixed_input = false, has_order = false;
  float input_scale = 0.0f;
  int32_t input_offset = 0;

  int64_t rows = 0, cols = 0, row_bytes = 0;
  std::vector<unsigned char> stored;
  std::vector<float> scales;
  std::vector<int16_t> zeros;
  std::vector<int32_t> k_order, order;
  std::vector<std::vector<double>> w;  // in x's order of columns
  std::vector<std::vector<int>> q;     // of int8 rows
  PackPlan plan;
  Shared<unsigned char> image;
  PackedWeight packed{};

  std::function<float()> values;  // of floats; empty: between -1 and 1

  // Random elements, packed in two goes.
  void make(int64_t rows_, int64_t cols_, uint32_t seed);
};

// One of each form that the kernels take.
std::vector<TestWeight> every_form();

}  // namespace choral_cuda
