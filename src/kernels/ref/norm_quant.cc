#include "kernels/ref/norm_quant.h"

#include <vector>

#include "kernels/ref/quant.h"
#include "kernels/ref/rms_norm.h"
#include "kernels/ref/row_quant.h"

namespace choral::kernels::ref {

void rms_norm_dynamic_quant(MatrixView<const float> x, std::span<const float> w, float eps, MatrixView<int8_t> q,
                            std::span<float> scale, MatrixView<float> y, std::span<const float> bias) {
  rms_norm(x, w, eps, y, bias);
  dynamic_quant_rows(y, q, scale);
}

void rms_norm_quantise(MatrixView<const float> x, std::span<const float> w, float eps, QuantiseOptions options,
                       QuantisedBlock* planes, MatrixView<float> y, std::span<const float> bias) {
  rms_norm(x, w, eps, y, bias);
  std::vector<float> rest(x.cols);
  for (int64_t t = 0; t < x.rows; ++t) {
    QuantisedBlock* coarse = planes + 2 * t * plane_blocks(x.cols);
    quantise_row(y.row(t), x.cols, options, coarse);
    for (int64_t i = 0; i < x.cols; ++i) {
      rest[i] = y.row(t)[i] - coarse[i / 32].scale * static_cast<float>(coarse[i / 32].q[i % 32]);
    }
    quantise_row(rest.data(), x.cols, options, coarse + plane_blocks(x.cols));
  }
}

}  // namespace choral::kernels::ref
