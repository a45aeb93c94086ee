// Copies between a rank's matrix and what the others sent or show.
#pragma once

#include "kernels/context.h"
#include "kernels/task_size.h"

namespace choral::engine {

// copy(row) for all rows of so many floats, by all threads where that is worth it.
template <class Copy>
void for_rows(const kernels::Context& ctx, int64_t rows, int64_t floats, const Copy& copy) {
  ctx.pool.parallel_for(rows, kernels::pieces_per_task(kernels::kLightTask, floats), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) copy(row);
  });
}

}  // namespace choral::engine
