#include "kernels/gemm/matrix_product.h"

#include <algorithm>

#include "base/checked_math.h"
#include "kernels/task_size.h"

namespace choral::kernels {
namespace {

using Products = std::span<const MatrixProduct* const>;

// Units of all products, numbered from the first product's first to the last one's last.
class Numbered {
 public:
  template <class Count>
  Numbered(Products products, Arena& scratch, Count count) : products_(products), ends_(scratch.make<int64_t>(products.size())) {
    int64_t end = 0;
    for (size_t i = 0; i < products.size(); ++i) ends_[i] = end += count(products[i]->work());
  }
  int64_t size() const { return ends_.back(); }

  // Calls run(product, begin, end) for the runs of units [begin, end) that belong to one product.
  template <class Run>
  void for_each_run(int64_t begin, int64_t end, Run run) const {
    size_t i = std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin();
    for (; begin < end; begin = ends_[i++]) {
      const int64_t first = i == 0 ? 0 : ends_[i - 1];
      if (ends_[i] > begin) run(*products_[i], begin - first, std::min(end, ends_[i]) - first);
    }
  }

 private:
  Products products_;
  std::span<int64_t> ends_;
};

void prepare(const Context& ctx, Products products) {
  int64_t elements = 0;
  for (const auto* p : products) elements += p->work().pieces * p->work().piece_elements;
  if (elements == 0) return;
  const Numbered pieces(products, ctx.scratch, [](const MatrixProduct::Work& work) { return work.pieces; });
  ctx.pool.parallel_for(
      pieces.size(), pieces_per_task(kLightTask, elements / pieces.size()), [&](int64_t begin, int64_t end, int) {
        pieces.for_each_run(begin, end,
                            [](const MatrixProduct& product, int64_t first, int64_t last) { product.prepare(first, last); });
      });
}

void multiply(const Context& ctx, Products products) {
  int64_t bytes = 0;
  for (const auto* p : products) bytes = std::max(bytes, round_up(p->work().thread_bytes, int64_t{kCacheLineBytes}));
  std::byte* memory = ctx.scratch.make<std::byte>(bytes * ctx.pool.size()).data();
  const Numbered tasks(products, ctx.scratch,
                       [](const MatrixProduct::Work& work) { return ceil_div(work.panels, work.task_panels); });
  ctx.pool.parallel_for(tasks.size(), 1, [&](int64_t begin, int64_t end, int thread) {
    tasks.for_each_run(begin, end, [&](const MatrixProduct& product, int64_t first, int64_t last) {
      const auto& work = product.work();
      for (int64_t task = first; task < last; ++task) {
        product.multiply(task * work.task_panels, std::min((task + 1) * work.task_panels, work.panels), memory + thread * bytes,
                         thread);
      }
    });
  });
}

}  // namespace

void run_products(const Context& ctx, std::span<const MatrixProduct* const> products) {
  const Arena::Mark mark(ctx.scratch);
  prepare(ctx, products);
  multiply(ctx, products);
}

}  // namespace choral::kernels
