// Scales and zero points that stand beside integers, one for each output channel or for each channel and group of k.
#pragma once

#include "base/checked_math.h"
#include "quant/integers/integer_storage.h"

namespace choral::quant {

inline int64_t scale_groups(const IntegerFormat& format, int64_t k) {
  return format.group_size == 0 ? 1 : ceil_div(k, format.group_size);
}

// One shard a member: its name and `suffix`, in the shape of shape_of(rows of the member).
template <class ShapeOf>
void for_each_shard(const LinearShape& shape, Parameter& parameter, std::string_view suffix, ShapeOf shape_of) {
  for (size_t i = 0; i < shape.out.size(); ++i) {
    parameter.shards.push_back({shape.shard_names[i] + std::string(suffix), shape_of(shape.out[i]), {}});
  }
}

// Shards of [rows, groups]; of one group also [rows]; of one scale for the whole tensor [1] or [1, 1].
void add_like_scales(const LinearShape& shape, const IntegerFormat& format, Parameter& parameter, std::string_view suffix);
// "weight_scale" so.
void add_scales(const LinearShape& shape, const IntegerFormat& format, ParameterSet& parameters);

// All elements; one that is no number is an error that names the tensor.
Result<std::vector<float>> read_floats(const Shard& shard);
// [rows, groups] from a shard of as many or of one.
Result<std::vector<float>> read_scales(const Shard& shard, int64_t rows, int64_t groups);
// The same of int8 integers.
std::vector<int16_t> read_zeros(const Shard& shard, int64_t rows, int64_t groups);

// A matrix that stands transposed, [groups, rows].
Result<std::vector<float>> read_scale_columns(const Shard& shard);

}  // namespace choral::quant
