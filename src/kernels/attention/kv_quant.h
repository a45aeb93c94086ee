// A key or a value of one head to int8, as quant/row_quant.h defines dynamic rows: all levels give the same bits. Pure.
#pragma once

#include <cstdint>

#include "base/cpu_level.h"

namespace choral::kernels {

// Element i of x [count] goes to q[i · stride]; gives the scale. q of other slots is left alone.
using QuantiseKv = float(const float* x, int64_t count, int8_t* q, int64_t stride);
QuantiseKv* quantise_kv(CpuLevel level);

}  // namespace choral::kernels
