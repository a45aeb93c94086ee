// A weight matrix W [n, k], packed once at load for y = x·Wᵀ, and the only copy of the weight in memory.
// Layout: panels of 16 output channels across lanes, k inside, so that decode (few rows) and prefill (many rows) stream the same
// bytes. Invariant 1: y[i, j] is one summation over k in one fixed order, the same for any number of rows, threads or neighbours.
// Immutable after packing; multiply() may be called from one thread at a time per Context, by many contexts at once.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "kernels/context.h"
#include "kernels/gemm/companion.h"
#include "kernels/quant/quantised_rows.h"
#include "tensor/view.h"

namespace choral::kernels {

struct KeptMatrix;

inline constexpr int64_t kPanelRows = 16;  // output channels of one panel, on every CPU level

// Rows of a stored tensor that become rows of W. Several parts are stacked (q, k, v or gate, up).
struct WeightRows {
  TensorView tensor;                    // [rows, k], any dtype the packer knows, GGUF blocks included
  std::span<const int32_t> order = {};  // packed row i is tensor row order[i]; empty = as stored
};

// What happens to a tile of y while it is in registers or L1: y = x·Wᵀ (+ product_hook) (+ bias) (+ old y) (+ result_hook), in
// this order. The product hook sees the bare product, on which what it adds may depend (DoRA); the result hook sees finished
// values, so that whatever it adds may as well be added later, by somebody else.
struct Epilogue {
  // Adds to a tile; `tile` is rows [row, row + tile.rows) and columns [col, col + tile.cols) of y.
  // Called once for each element of y, from any worker thread.
  using Hook = FunctionRef<void(int64_t row, int64_t col, MatrixView<float> tile)>;

  const float* bias = nullptr;  // [n]
  const Hook* product_hook = nullptr;
  const Hook* result_hook = nullptr;
  bool accumulate = false;  // adds to what y held: the residual stream
  Companion* companion = nullptr;
  int64_t row = 0, col = 0;  // of y in what the hooks speak of, where it is a part of that
};

// Rows of x, as floats or as the matrix wants them quantised.
struct ProductInput {
  MatrixView<const float> x;
  QuantisedRows quantised;  // empty: x as it is

  int64_t rows() const { return quantised.empty() ? x.rows : quantised.rows(); }
  int64_t cols() const { return quantised.empty() ? x.cols : quantised.k(); }
  ProductInput sub_rows(int64_t begin, int64_t count) const {
    if (quantised.empty()) return {x.sub_rows(begin, count), {}};
    return {{}, quantised.sub_rows(begin, count)};
  }
};

class MatrixProduct;

class PackedMatrix {
 public:
  virtual ~PackedMatrix() = default;

  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  virtual int64_t size_bytes() const = 0;
  // Held and multiplied by a device of its own; multiply() is for the host's matrices.
  virtual bool on_device() const { return false; }
  virtual std::string format() const = 0;                     // "bf16", "q4_0"
  virtual std::string kernel_name(CpuLevel level) const = 0;  // what multiply() runs there: "bf16 x f32, avx512 fma"

  // y [m, n] = x [m, k] · Wᵀ with the epilogue. Shapes were checked when the batch was built. Allocates only from ctx.scratch.
  void multiply(const Context& ctx, MatrixView<const float> x, const Epilogue& epilogue, MatrixView<float> y) const;

  // How multiply() quantises x at `level`; none: it reads the floats. Who makes x may then make rows of that form on the way
  // (fused/norm_quant.h, fused/swiglu_quant.h) and call multiply_quantised(), which gives the bits of multiply(x): y.rows rows of
  // the form for the level of ctx. Not for a matrix that says none.
  virtual std::optional<RowForm> quantised_input(CpuLevel) const { return std::nullopt; }
  void multiply_quantised(const Context& ctx, const QuantisedRows& x, const Epilogue& epilogue, MatrixView<float> y) const;

  // multiply() as work that threads share (matrix_product.h), of some rows, at most most_rows(), in tasks for `threads` threads.
  // It lies in ctx.scratch with its working memory; W, x, y and what the epilogue points to outlive it.
  virtual int64_t most_rows(CpuLevel level) const = 0;
  virtual const MatrixProduct* plan(const Context& ctx, const ProductInput& x, const Epilogue& epilogue, MatrixView<float> y,
                                    int threads) const = 0;

  // Row `row` of W as float: the embedding lookup of a tied matrix. Any thread. An error is the device's; the host's own matrices
  // have none.
  virtual Status read_row(int64_t row, std::span<float> out) const = 0;

  // What it can be made again from (kept_matrix.h); none: it is packed anew each time. Points into the matrix.
  virtual std::optional<KeptMatrix> kept() const;

 protected:
  PackedMatrix(int64_t n, int64_t k) : n_(n), k_(k) {}

 private:
  int64_t n_, k_;
};

}  // namespace choral::kernels
