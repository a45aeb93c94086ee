// A key or a value of one head to int8, as quant/row_quant.h defines dynamic rows: all levels give the same bits. And how a key's
// elements, of any type, come to lie apart. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/cpu_level.h"

namespace choral::kernels {

// Element i of x [count] goes to q[i · stride]; gives the scale. q of other slots is left alone.
using QuantiseKv = float(const float* x, int64_t count, int8_t* q, int64_t stride);
QuantiseKv* quantise_kv(CpuLevel level);

// Element i goes to to[i · stride]; make(begin, size, piece) makes some neighbouring ones at a time.
template <class T, class Make>
void write_apart(int64_t count, T* to, int64_t stride, const Make& make) {
  constexpr int64_t kPiece = 256;
  T piece[kPiece];
  for (int64_t begin = 0; begin < count; begin += kPiece) {
    const int64_t size = std::min(kPiece, count - begin);
    make(begin, size, piece);
    for (int64_t i = 0; i < size; ++i) to[(begin + i) * stride] = piece[i];
  }
}

}  // namespace choral::kernels
