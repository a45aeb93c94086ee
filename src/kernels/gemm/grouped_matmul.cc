#include "kernels/gemm/grouped_matmul.h"

#include "base/checked_math.h"
#include "kernels/gemm/matrix_product.h"

namespace choral::kernels {
namespace {

// What of a product is done in turn `turn`, where more rows than its matrix takes at once are several turns of near-equal height.
GroupProduct part_of(const GroupProduct& product, int64_t most, int64_t turn) {
  const int64_t rows = product.y.rows, turns = ceil_div(rows, most);
  if (turn >= turns) return {};
  const int64_t begin = turn * rows / turns, count = (turn + 1) * rows / turns - begin;
  GroupProduct part{product.w, product.x.sub_rows(begin, count), product.epilogue, product.y.sub_rows(begin, count)};
  part.epilogue.row += begin;
  return part;
}

}  // namespace

void grouped_matmul(const Context& ctx, std::span<const GroupProduct> products) {
  int64_t panels = 0;
  for (const auto& p : products) {
    if (p.y.rows > 0) panels += ceil_div(p.w->n(), kPanelRows);
  }
  for (int64_t turn = 0;; ++turn) {
    const Arena::Mark mark(ctx.scratch);
    const auto planned = ctx.scratch.make<const MatrixProduct*>(products.size());
    size_t count = 0;
    for (const auto& product : products) {
      if (product.y.rows == 0) continue;
      const auto part = part_of(product, product.w->most_rows(ctx.level), turn);
      if (part.y.rows == 0) continue;
      CHORAL_CHECK(product.x.rows() == product.y.rows && product.x.cols() == product.w->k() && product.y.cols == product.w->n(),
                   "x is [m, k], y is [m, n]");
      // As many tasks as its share of the threads wants.
      const int64_t threads = ceil_div(ctx.pool.size() * ceil_div(part.w->n(), kPanelRows), panels);
      planned[count++] = part.w->plan(ctx, part.x, part.epilogue, part.y, static_cast<int>(threads));
    }
    if (count == 0) return;
    run_products(ctx, planned.first(count));
  }
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
