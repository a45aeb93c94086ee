#include "quant/integers/stored_vectors.h"

namespace choral::quant {
void add_like_scales(const LinearShape& shape, const IntegerFormat& format, Parameter& parameter, std::string_view suffix) {
  const int64_t groups = scale_groups(format, shape.in);
  for_each_shard(shape, parameter, suffix, [&](int64_t rows) { return format.one_scale ? Shape{1} : Shape{rows, groups}; });
  for (Shard& shard : parameter.shards) {
    if (format.one_scale) shard.other_shapes = {Shape{1, 1}, Shape{}};
    if (!format.one_scale && groups == 1) shard.other_shapes = {Shape{shard.shape[0]}};
  }
}

void add_scales(const LinearShape& shape, const IntegerFormat& format, ParameterSet& parameters) {
  add_like_scales(shape, format, parameters.add("weight_scale", StoredAs::kFloat), ".weight_scale");
}

Result<std::vector<float>> read_scales(const Shard& shard, int64_t rows, int64_t groups) {
  CHORAL_TRY(auto scales, read_floats(shard));
  if (scales.size() == 1) scales.resize(static_cast<size_t>(rows * groups), scales.front());
  return scales;
}

std::vector<int16_t> read_zeros(const Shard& shard, int64_t rows, int64_t groups) {
  const auto* stored = reinterpret_cast<const int8_t*>(shard.tensor.view.data);
  std::vector<int16_t> zeros(stored, stored + shard.tensor.view.shape.elements());
  if (zeros.size() == 1) zeros.resize(static_cast<size_t>(rows * groups), zeros.front());
  return zeros;
}

Result<std::vector<float>> read_scale_columns(const Shard& shard) {
  CHORAL_TRY(const auto stored, read_floats(shard));
  const int64_t groups = shard.shape[0], rows = shard.shape[1];
  std::vector<float> scales(stored.size());
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t r = 0; r < rows; ++r) scales[r * groups + g] = stored[g * rows + r];
  }
  return scales;
}

}  // namespace choral::quant
