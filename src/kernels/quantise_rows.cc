#include "kernels/quantise_rows.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/ref/quant.h"
#include "kernels/x86/quant_rows.h"

namespace choral::kernels {
namespace {
constexpr int64_t kElementsPerTask = 16384;  // about 5 µs: less is not worth waking a thread
}  // namespace

void quantise_row(CpuLevel level, const float* x, int64_t k, QuantiseOptions options, QuantisedBlock* out) {
  CHORAL_DCHECK(k % 32 == 0, "rows are whole blocks");
  if (level >= CpuLevel::kAvx2) return x86::quantise_row_avx2(x, k, options, out);
  ref::quantise_row(x, k, options, out);
}

void quantise_rows(ThreadPool& pool, CpuLevel level, MatrixView<const float> x, QuantiseOptions options, QuantisedBlock* out) {
  const int64_t blocks = x.cols / 32;
  pool.parallel_for(x.rows, std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(x.cols, 1)),
                    [&](int64_t begin, int64_t end, int) {
                      for (int64_t row = begin; row < end; ++row)
                        quantise_row(level, x.row(row), x.cols, options, out + row * blocks);
                    });
}

}  // namespace choral::kernels
