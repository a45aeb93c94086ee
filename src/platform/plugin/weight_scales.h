// What a quantised weight has beside its integers: WeightForm, by which devices take weights or not, and WeightScales, a copy in
// the plug-in interface's order: a row of scales for each row of W, whatever the order in which its parts are stored.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "choral/plugin.h"
#include "kernels/gemm/pack_spec.h"

namespace choral::platform {

struct WeightForm {
  DType format;
  kernels::Activations activations;
  int bits;
  kernels::Codebook codebook;
  int64_t group_size;
  bool has_zeros, has_k_order, has_fixed_input;

  static WeightForm of(const kernels::PackSpec& weight);
  std::string describe() const;  // "int4 weights in groups of 128, x in full"
  bool operator==(const WeightForm&) const = default;
};

struct WeightScales {
  kernels::PackSpec form;  // without its spans
  std::vector<float> scales;
  std::vector<int16_t> zeros;
  std::vector<int32_t> k_order;

  // Of a weight of int8 or e4m3.
  static Result<WeightScales> of(const kernels::PackSpec& weight);

  // Pointers into this.
  void describe(choral_weight& weight) const;
  // The whole weight again, of int8 rows in W's order.
  kernels::PackSpec with(std::span<const kernels::WeightRows> rows) const;
  // The integers of row `i` of W, whose floats as x meets them are `row`.
  Status restore(int64_t i, std::span<const float> row, std::span<int8_t> q) const;
};

}  // namespace choral::platform
