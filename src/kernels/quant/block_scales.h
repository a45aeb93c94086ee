// A block's own scales, for those who make blocks of any bits: synthetic weights, conformance runs, tests.
#pragma once

#include <cstddef>

#include "tensor/dtype.h"

namespace choral::kernels {

// The most that |w| is of |d|, leaving out m.
float block_reach(DType type);

// Writes d, and m where the type has it (Q4_K's and the like subtract it times a scale). MXFP4 gets the power of two of d.
void set_block_scales(DType type, std::byte* block, float d, float m);

}  // namespace choral::kernels
