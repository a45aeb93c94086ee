// What formats and schemes do alike with the stored tensors of a layer: register one a member, read a small one whole.
#pragma once

#include "quant/linear_method.h"

namespace choral::quant {

// One shard a member: its name and `suffix`, in the shape of shape_of(rows of the member).
template <class ShapeOf>
void for_each_shard(const LinearShape& shape, Parameter& parameter, std::string_view suffix, ShapeOf shape_of) {
  for (size_t i = 0; i < shape.out.size(); ++i) {
    parameter.shards.push_back({shape.shard_names[i] + std::string(suffix), shape_of(shape.out[i]), {}});
  }
}
// "weight", [rows, k] of each member.
void add_weight(const LinearShape& shape, StoredAs stored_as, ParameterSet& parameters);

// A weight's rows, in `memory` where the file has them as columns or in parts: a view of either.
Result<TensorView> as_rows(const platform::Context& ctx, const io::SourceTensor& weight, Tensor& memory);

// All elements of a float type or of e8m0, which may also be stored as bytes; one that is no number is an error that names the
// tensor.
Result<std::vector<float>> read_floats(const Shard& shard);
// Integers of any type, which may stand at any address.
std::vector<int64_t> read_integers(const Shard& shard);

}  // namespace choral::quant
