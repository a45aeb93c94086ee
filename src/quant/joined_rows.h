// A weight whose file holds its rows in several matrices (io::RowsInTurn), as one: a mixture's gate and up, or the keys and
// values of latent attention, head by head. Pure; any thread.
#pragma once

#include "io/checkpoint.h"

namespace choral::quant {

// Of a weight that has parts.
int64_t turns_of(const io::SourceTensor& weight);
// Turns [begin, end) in the type of weight.view, which is that of the parts or float32, one after the other. A part that is
// turned round and one of another type than the whole are floats then.
void join_turns(const io::SourceTensor& weight, int64_t begin, int64_t end, std::byte* to);

}  // namespace choral::quant
