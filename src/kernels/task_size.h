// How much of a pass over elements is one task of the pool: a few µs, so that waking a thread for it pays and threads end
// together. Cutting changes no bit. Products have rules of their own, by panels and tiles.
#pragma once

#include <algorithm>
#include <cstdint>

namespace choral::kernels {

// Elements of a task, by what an element costs; multiples of every vector and of quantised blocks.
inline constexpr int64_t kLightTask = 8192;   // moved, turned, compared
inline constexpr int64_t kMediumTask = 4096;  // summed and scaled
inline constexpr int64_t kHeavyTask = 2048;   // an exponential each

// So many pieces of `elements` each (rows, heads) are one task.
inline int64_t pieces_per_task(int64_t task_elements, int64_t elements) {
  return std::max<int64_t>(1, task_elements / std::max<int64_t>(elements, 1));
}

}  // namespace choral::kernels
