// How many tasks a product is, so that the threads end together: arithmetic alone, for any number of threads. The outputs of a
// matrix are divided first, since each of its bytes is then read once. Where a matrix has too few of them, rows are divided too.
#pragma once

#include <cstdint>

#include "base/function_ref.h"

namespace choral::kernels {

// Panels of one task: cut so that threads end together, each task a multiple of `group` panels where that costs nothing.
int64_t panels_per_task(int64_t panels, int threads, int64_t group, int64_t most);
// The same of quantised weights: the panels that the kernels take at once, several times that where there are many, and less
// where threads would have nothing to do.
int64_t quant_panels_per_task(int64_t panels, int threads);

// The rows of a product in near-equal parts, of which so many are one parallel region: at least what the matrix asks for.
struct RowParts {
  int64_t parts = 1;
  int64_t at_once = 1;
};
// `most_rows`: of a part. `task_panels`: of one of so many rows, for so many threads.
using TaskPanels = FunctionRef<int64_t(int64_t rows, int threads)>;
RowParts divide_rows(int64_t rows, int64_t most_rows, int64_t panels, int threads, TaskPanels task_panels);

// The busiest thread's share of a region of `parts` such parts, where the mean is 1: threads take one task after another.
double busiest_share(int64_t parts, int64_t panels, int64_t task_panels, int threads);

}  // namespace choral::kernels
