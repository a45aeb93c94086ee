#include "kernels/gemm/grouped_matmul.h"

#include <algorithm>

#include "base/checked_math.h"
#include "kernels/gemm/matrix_product.h"
#include "kernels/gemm/work_division.h"

namespace choral::kernels {
namespace {

// Rows [part, part + 1) · rows / parts of the product.
GroupProduct part_of(const GroupProduct& product, int64_t parts, int64_t part) {
  const int64_t rows = product.y.rows, begin = part * rows / parts, count = (part + 1) * rows / parts - begin;
  GroupProduct some{product.w, product.x.sub_rows(begin, count), product.epilogue, product.y.sub_rows(begin, count)};
  some.epilogue.row += begin;
  return some;
}

int64_t panels_of(const GroupProduct& product) { return ceil_div(product.w->n(), kPanelRows); }

const MatrixProduct* plan(const Context& ctx, const GroupProduct& product, int64_t threads) {
  return product.w->plan(ctx, product.x, product.epilogue, product.y, static_cast<int>(threads));
}

// More rows than the matrix takes at once are several parts, and so are those of a matrix with too few outputs for the threads.
void multiply_one(const Context& ctx, const GroupProduct& product) {
  const int threads = ctx.pool.size();
  const auto task_panels = [&](int64_t rows, int of_threads) {
    const Arena::Mark mark(ctx.scratch);
    return plan(ctx, part_of(product, ceil_div(product.y.rows, rows), 0), of_threads)->work().task_panels;
  };
  const auto [parts, at_once] =
      divide_rows(product.y.rows, product.w->most_rows(ctx.level), panels_of(product), threads, task_panels);
  for (int64_t first = 0; first < parts; first += at_once) {
    const Arena::Mark mark(ctx.scratch);
    const int64_t count = std::min(at_once, parts - first);
    const auto planned = ctx.scratch.make<const MatrixProduct*>(count);
    for (int64_t i = 0; i < count; ++i) planned[i] = plan(ctx, part_of(product, parts, first + i), ceil_div(threads, at_once));
    run_products(ctx, planned);
  }
}

// Of many matrices at once, each part as large as its matrix takes.
void multiply_many(const Context& ctx, std::span<const GroupProduct> products) {
  int64_t panels = 0;
  for (const auto& product : products) panels += product.y.rows > 0 ? panels_of(product) : 0;
  for (int64_t turn = 0;; ++turn) {
    const Arena::Mark mark(ctx.scratch);
    const auto planned = ctx.scratch.make<const MatrixProduct*>(products.size());
    size_t count = 0;
    for (const auto& product : products) {
      const int64_t turns = ceil_div(product.y.rows, product.w->most_rows(ctx.level));
      if (turn >= turns) continue;
      // As many tasks as its share of the threads wants.
      planned[count++] = plan(ctx, part_of(product, turns, turn), ceil_div(ctx.pool.size() * panels_of(product), panels));
    }
    if (count == 0) return;
    run_products(ctx, planned.first(count));
  }
}

}  // namespace

void grouped_matmul(const Context& ctx, std::span<const GroupProduct> products) {
  for (const auto& product : products) {
    CHORAL_CHECK(product.y.rows == 0 || (product.x.rows() == product.y.rows && product.x.cols() == product.w->k() &&
                                         product.y.cols == product.w->n()),
                 "x is [m, k], y is [m, n]");
  }
  if (products.size() != 1) return multiply_many(ctx, products);
  if (products.front().y.rows > 0) multiply_one(ctx, products.front());
}

void PackedMatrix::multiply(const Context& ctx, MatrixView<const float> x, const Epilogue& epilogue, MatrixView<float> y) const {
  const GroupProduct one{this, {x, {}}, epilogue, y};
  grouped_matmul(ctx, {&one, 1});
}

void PackedMatrix::multiply_quantised(const Context& ctx, const QuantisedRows& x, const Epilogue& epilogue,
                                      MatrixView<float> y) const {
  CHORAL_CHECK(x.form() == quantised_input(ctx.level), "x has the form that the matrix asked for");
  const GroupProduct one{this, {{}, x}, epilogue, y};
  grouped_matmul(ctx, {&one, 1});
}

}  // namespace choral::kernels
