// In vectors of 16 bytes, which compilers have instructions for on every CPU of today.
#include "kernels/peak_loops.h"

#define CHORAL_UNROLL _Pragma("GCC unroll 16")

namespace choral::kernels {
namespace {

using Floats [[gnu::vector_size(16)]] = float;
using Shorts [[gnu::vector_size(16)]] = int16_t;

// What the loops keep from the optimiser.
template <class T>
void touch(T& value) {
  asm volatile("" : "+w"(value));
}

double fma(int64_t steps) {
  Floats acc[kChains] = {};
  Floats a = Floats{} + 0.999F, b = Floats{} + 1e-4F;
  touch(a);
  touch(b);
  for (int64_t i = 0; i < steps; ++i) {
    CHORAL_UNROLL
    for (int c = 0; c < kChains; ++c) {
      for (int lane = 0; lane < 4; ++lane) acc[c][lane] = __builtin_fmaf(acc[c][lane], a[lane], b[lane]);
      touch(acc[c]);
    }
  }
  return static_cast<double>(steps) * kChains * 4 * 2;
}

double int8(int64_t steps) {  // int16 products, whose sums stay so
  Shorts acc[kChains] = {};
  Shorts a = Shorts{} + 3, b = Shorts{} + 5;
  for (int64_t i = 0; i < steps; ++i) {
    CHORAL_UNROLL
    for (int c = 0; c < kChains; ++c) {
      touch(a);
      acc[c] += a * b;
      touch(acc[c]);
    }
  }
  return static_cast<double>(steps) * kChains * 8 * 2;
}

}  // namespace

const PeakLoops& peak_loops(CpuLevel) {
  static const PeakLoops kLoops{base_readers(), fma, int8, nullptr};
  return kLoops;
}

}  // namespace choral::kernels
