#include "kernels/quantise_rows.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/ref/quant.h"
#include "kernels/x86/quant_rows.h"

namespace choral::kernels {
namespace {
constexpr int64_t kElementsPerTask = 8192;  // about 5 µs: less is not worth waking a thread
constexpr int64_t kRestFloats = 512;        // what coarse leaves over, a piece of a row at a time: stays in L1
}  // namespace

void quantise_row(CpuLevel level, const float* x, int64_t k, QuantiseOptions options, QuantisedBlock* out) {
  CHORAL_DCHECK(k % 32 == 0, "rows are whole blocks");
  if (level >= CpuLevel::kAvx2) return x86::quantise_row_avx2(x, k, options, out);
  ref::quantise_row(x, k, options, out);
}

void quantise_planes(CpuLevel level, const float* x, int64_t k, QuantiseOptions options, QuantisedBlock* coarse,
                     QuantisedBlock* fine) {
  quantise_row(level, x, k, options, coarse);
  float rest[kRestFloats];
  for (int64_t begin = 0; begin < k; begin += kRestFloats) {
    const int64_t count = std::min(kRestFloats, k - begin);
    const QuantisedBlock* blocks = coarse + begin / 32;
    for (int64_t i = 0; i < count; ++i) {
      rest[i] = x[begin + i] - blocks[i / 32].scale * static_cast<float>(blocks[i / 32].q[i % 32]);
    }
    quantise_row(level, rest, count, options, fine + begin / 32);
  }
}

void quantise_rows(ThreadPool& pool, CpuLevel level, MatrixView<const float> x, QuantiseOptions options, QuantisedBlock* out) {
  const int64_t blocks = x.cols / 32;
  pool.parallel_for(x.rows, std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(x.cols, 1)),
                    [&](int64_t begin, int64_t end, int) {
                      for (int64_t row = begin; row < end; ++row) {
                        QuantisedBlock* coarse = out + 2 * row * blocks;
                        quantise_planes(level, x.row(row), x.cols, options, coarse, coarse + blocks);
                      }
                    });
}

}  // namespace choral::kernels
