// The oracle of attention.h: for each row and head, all scores, softmax and the weighted sum of values, in double.
// Single-threaded.
#pragma once

#include "kernels/attention/attention.h"

namespace choral::kernels::ref {

void paged_attention(const AttentionParams& params, MatrixView<const float> q, const KvCacheView& cache,
                     std::span<const AttentionSequence> sequences, MatrixView<float> out);

}  // namespace choral::kernels::ref
