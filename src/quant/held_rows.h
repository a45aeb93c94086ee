// What a rank of a divided model holds of a layer's stored tensors: some rows of W, and with them some of every tensor that goes
// by rows, in whatever dimension and packing a scheme has it. A scheme is not asked to know of it: the shapes that it wants for
// all rows, for those before and for the held ones say where these lie.
#pragma once

#include "quant/linear_method.h"

namespace choral::quant {

// Adds rows [begin, begin + count) of the whole layer to what is held of it.
void hold_rows(const LinearShape& whole, int64_t begin, int64_t count, LinearShape& held);

// Whether the held rows of `shape` can be had alone: not where the first of them shares a word or a scale with rows before.
bool may_hold(LinearMethod& method, const LinearShape& shape);

// ParameterSet::weight_loader(), of a layer that holds some rows; `parameters` are those of `shape`.
Status load_held_rows(LinearMethod& method, const LinearShape& shape, WeightSource& source, ParameterSet& parameters);

// Leaves of each loaded tensor what is held, which costs memory where the file has other rows between or another order: when the
// layer is about to be packed.
Status cut_held_rows(const platform::Context& ctx, ParameterSet& parameters);

}  // namespace choral::quant
