// Scales and zero points that stand beside integers, one for each output channel or for each channel and group of k.
#pragma once

#include "base/checked_math.h"
#include "quant/integers/integer_storage.h"
#include "quant/shards.h"

namespace choral::quant {

inline int64_t scale_groups(const IntegerFormat& format, int64_t k) {
  return format.group_size == 0 ? 1 : ceil_div(k, format.group_size);
}

// Shards of [rows, groups]; of one group also [rows]; of one scale for the whole tensor [1] or [1, 1].
void add_like_scales(const LinearShape& shape, const IntegerFormat& format, Parameter& parameter, std::string_view suffix);
// "weight_scale" so.
void add_scales(const LinearShape& shape, const IntegerFormat& format, ParameterSet& parameters);

// [rows, groups] from a shard of as many or of one.
Result<std::vector<float>> read_scales(const Shard& shard, int64_t rows, int64_t groups);
// The same of int8 integers.
std::vector<int16_t> read_zeros(const Shard& shard, int64_t rows, int64_t groups);

// A matrix that stands transposed, [groups, rows].
Result<std::vector<float>> read_scale_columns(const Shard& shard);

}  // namespace choral::quant
