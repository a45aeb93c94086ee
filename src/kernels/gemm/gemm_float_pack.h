// The moves that packing float weights is made of: 16 rows transposed into a panel, and floats rounded to 16 bits.
// Sources are unaligned. Chosen by the CPU level; all levels give the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/cpu_level.h"
#include "base/float16.h"

namespace choral::kernels {

struct PackKernels {
  // out[i][r] = rows[r][i] for i < count, r < rows_present (at most 16; further lanes are left as they are), 4- or 2-byte
  // elements.
  void (*transpose32)(const std::byte* const* rows, int rows_present, int64_t count, std::byte* out);
  void (*transpose16)(const std::byte* const* rows, int rows_present, int64_t count, std::byte* out);
  void (*to_bfloat16)(const float* in, int64_t count, BFloat16* out);
  void (*to_float16)(const float* in, int64_t count, Float16* out);
};

const PackKernels& pack_kernels(CpuLevel level);
const PackKernels& base_pack_kernels();
const PackKernels& avx2_pack_kernels();

// The transposes' elements [begin, end), one after another.
template <class T>
void transpose_each(const std::byte* const* rows, int rows_present, int64_t begin, int64_t end, std::byte* out) {
  constexpr int64_t kLanes = 16, kSize = sizeof(T);
  for (int r = 0; r < rows_present; ++r) {
    for (int64_t i = begin; i < end; ++i) std::memcpy(out + (i * kLanes + r) * kSize, rows[r] + i * kSize, kSize);
  }
}

}  // namespace choral::kernels
