#include "kernels/gemm/reordered_matrix.h"

#include <vector>

#include "kernels/gemm/kept_matrix.h"
#include "kernels/gemm/matrix_product.h"

namespace choral::kernels {
namespace {

// Gathers a row on the way to where the inner product makes it ready.
class ReorderedProduct final : public MatrixProduct {
 public:
  ReorderedProduct(const MatrixProduct& inner, std::span<const int32_t> order, MatrixView<const float> x,
                   MatrixView<float> gathered)
      : MatrixProduct(inner.work()), inner_(inner), order_(order), x_(x), gathered_(gathered) {}

  void prepare(int64_t begin, int64_t end) const override {
    for (int64_t r = begin; r < end; ++r) {
      const float* from = x_.row(r);
      float* to = gathered_.row(r);
      for (size_t j = 0; j < order_.size(); ++j) to[j] = from[order_[j]];
    }
    inner_.prepare(begin, end);
  }
  void multiply(int64_t begin, int64_t end, std::byte* memory, int thread) const override {
    inner_.multiply(begin, end, memory, thread);
  }

 private:
  const MatrixProduct& inner_;
  std::span<const int32_t> order_;
  MatrixView<const float> x_;
  MatrixView<float> gathered_;
};

class ReorderedMatrix final : public PackedMatrix {
 public:
  ReorderedMatrix(std::unique_ptr<PackedMatrix> inner, std::span<const int32_t> order)
      : PackedMatrix(inner->n(), inner->k()), inner_(std::move(inner)), order_(order.begin(), order.end()) {}

  int64_t size_bytes() const override { return inner_->size_bytes() + static_cast<int64_t>(order_.size() * sizeof(int32_t)); }
  std::string format() const override { return inner_->format() + " in its own order of k"; }
  std::string kernel_name(CpuLevel level) const override { return inner_->kernel_name(level) + ", x gathered"; }

  int64_t most_rows(CpuLevel level) const override { return inner_->most_rows(level); }
  const MatrixProduct* plan(const Context& ctx, const ProductInput& input, const Epilogue& epilogue, MatrixView<float> y,
                            int threads) const override {
    const MatrixView<const float> x = input.x;
    const MatrixView<float> gathered(ctx.scratch.make<float>(x.rows * k()).data(), x.rows, k());
    const MatrixProduct& inner = *inner_->plan(ctx, {gathered, {}}, epilogue, y, threads);
    CHORAL_CHECK(inner.work().pieces == x.rows, "integers meet x row by row");
    return new (ctx.scratch.make<ReorderedProduct>(1).data()) ReorderedProduct(inner, order_, x, gathered);
  }

  Status read_row(int64_t row, std::span<float> out) const override {
    std::vector<float> ordered(out.size());
    CHORAL_RETURN_IF_ERROR(inner_->read_row(row, ordered));
    for (size_t j = 0; j < order_.size(); ++j) out[order_[j]] = ordered[j];
    return {};
  }
  std::optional<KeptMatrix> kept() const override {
    auto inner = inner_->kept();
    if (inner) inner->k_order = order_;
    return inner;
  }

 private:
  std::unique_ptr<PackedMatrix> inner_;
  std::vector<int32_t> order_;
};

}  // namespace

Result<std::unique_ptr<PackedMatrix>> reorder_input(std::unique_ptr<PackedMatrix> matrix, std::span<const int32_t> order) {
  std::vector<bool> seen(matrix->k());
  for (const int32_t at : order) {
    if (at < 0 || at >= matrix->k() || seen[at]) return invalid_argument("an order of {} inputs names {}", matrix->k(), at);
    seen[at] = true;
  }
  if (std::ssize(order) != matrix->k()) return invalid_argument("an order of {} inputs has {}", matrix->k(), order.size());
  return std::unique_ptr<PackedMatrix>(std::make_unique<ReorderedMatrix>(std::move(matrix), order));
}

}  // namespace choral::kernels
