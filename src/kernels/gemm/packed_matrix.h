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
#include "kernels/fused/row_quant.h"
#include "kernels/gemm/companion.h"
#include "kernels/quant/quantise_rows.h"
#include "tensor/view.h"

namespace choral::kernels {

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
};

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
  virtual void multiply(const Context& ctx, MatrixView<const float> x, const Epilogue& epilogue, MatrixView<float> y) const = 0;

  // How multiply() quantises x at `level` (quantise_rows with these options); none: it reads the floats. Who makes x may then
  // make its planes on the way (fused/norm_quant.h, fused/swiglu_quant.h) and call multiply_quantised(), which gives the bits of
  // multiply(x): planes has 2 · y.rows · k / 32 blocks, made with these options for the level of ctx. Not for a matrix that says
  // none.
  virtual std::optional<QuantiseOptions> quantised_input(CpuLevel level) const;
  virtual void multiply_quantised(const Context& ctx, std::span<const QuantisedBlock> planes, const Epilogue& epilogue,
                                  MatrixView<float> y) const;

  // The same for a matrix that multiplies rows of int8 with one scale each: quant_rows() with these options makes of x what
  // multiply() makes of it, and multiply_int8() gives the bits of multiply(x). q [y.rows, k] may hold any bytes, scales [y.rows].
  virtual std::optional<RowQuant> int8_input() const;
  virtual void multiply_int8(const Context& ctx, MatrixView<const int8_t> q, std::span<const float> scales,
                             const Epilogue& epilogue, MatrixView<float> y) const;

  // Row `row` of W as float: the embedding lookup of a tied matrix. Any thread. An error is the device's; the host's own matrices
  // have none.
  virtual Status read_row(int64_t row, std::span<float> out) const = 0;

 protected:
  PackedMatrix(int64_t n, int64_t k) : n_(n), k_(k) {}

 private:
  int64_t n_, k_;
};

inline std::optional<QuantiseOptions> PackedMatrix::quantised_input(CpuLevel) const { return std::nullopt; }

inline void PackedMatrix::multiply_quantised(const Context&, std::span<const QuantisedBlock>, const Epilogue&,
                                             MatrixView<float>) const {
  CHORAL_CHECK(false, "only a matrix that names its quantised input multiplies one");
}

inline std::optional<RowQuant> PackedMatrix::int8_input() const { return std::nullopt; }

inline void PackedMatrix::multiply_int8(const Context&, MatrixView<const int8_t>, std::span<const float>, const Epilogue&,
                                        MatrixView<float>) const {
  CHORAL_CHECK(false, "only a matrix that names its int8 input multiplies one");
}

}  // namespace choral::kernels
