// A product y = x·Wᵀ of some rows as work that threads share: first all pieces of prepare(), which make x ready, then all panels
// of multiply(). Whoever runs it (grouped_matmul.h) divides both over the pool, so that the products of many matrices are one
// parallel region like that of one. Made by PackedMatrix::plan() in ctx.scratch and never destroyed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/context.h"

namespace choral::kernels {

class MatrixProduct {
 public:
  struct Work {
    int64_t pieces = 0;          // of prepare(); 0: x is ready
    int64_t piece_elements = 0;  // of x in one
    int64_t panels = 0;          // of multiply()
    int64_t task_panels = 1;     // that are run at once, but for the last
    int64_t thread_bytes = 0;    // of the memory that a thread brings to multiply()
  };
  const Work& work() const { return work_; }

  // Any thread; each piece once.
  virtual void prepare(int64_t begin, int64_t end) const = 0;
  // Panels [begin, end) of W and their columns of y, each once, when all is prepared. `memory` is 64-byte aligned and of nobody
  // else until this returns; `thread` is the caller's number in the pool.
  virtual void multiply(int64_t begin, int64_t end, std::byte* memory, int thread) const = 0;

 protected:
  explicit MatrixProduct(const Work& work) : work_(work) {}
  ~MatrixProduct() = default;

 private:
  Work work_;
};

void run_products(const Context& ctx, std::span<const MatrixProduct* const> products);

}  // namespace choral::kernels
