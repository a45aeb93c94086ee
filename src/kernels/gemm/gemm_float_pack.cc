#include "kernels/gemm/gemm_float_pack.h"

namespace choral::kernels {
namespace {

void transpose32_base(const std::byte* const* rows, int rows_present, int64_t count, std::byte* out) {
  transpose_each<uint32_t>(rows, rows_present, 0, count, out);
}
void transpose16_base(const std::byte* const* rows, int rows_present, int64_t count, std::byte* out) {
  transpose_each<uint16_t>(rows, rows_present, 0, count, out);
}
void to_bfloat16_base(const float* in, int64_t count, BFloat16* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = to_bfloat16(in[i]);
}
void to_float16_base(const float* in, int64_t count, Float16* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = to_float16(in[i]);
}

}  // namespace

const PackKernels& base_pack_kernels() {
  static constexpr PackKernels kKernels{transpose32_base, transpose16_base, to_bfloat16_base, to_float16_base};
  return kKernels;
}

}  // namespace choral::kernels
