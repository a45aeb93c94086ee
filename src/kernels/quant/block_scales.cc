#include "kernels/quant/block_scales.h"

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/float16.h"

namespace choral::kernels {
namespace {

// Where the fp16 fields of a block stand: d, and its partner (m, dmin) or none.
constexpr int kNone = -1;
struct BlockFields {
  int d, m = kNone;
  float reach = 0;
};

BlockFields block_fields(DType type) {
  switch (type) {
    case DType::kQ8_0: return {0, kNone, 128};
    case DType::kQ4_0: return {0, kNone, 8};
    case DType::kQ4_1: return {0, 2, 15};
    case DType::kQ5_0: return {0, kNone, 16};
    case DType::kQ5_1: return {0, 2, 31};
    case DType::kQ4_K: return {0, 2, 15 * 63};
    case DType::kQ5_K: return {0, 2, 31 * 63};
    case DType::kQ6_K: return {208, kNone, 32 * 128};
    case DType::kQ2_K: return {80, 82, 3 * 15};
    case DType::kQ3_K: return {108, kNone, 4 * 32};
    case DType::kIQ4_NL: return {0, kNone, 127};
    case DType::kIQ4_XS: return {0, kNone, 127 * 32};
    case DType::kTQ1_0: return {52, kNone, 1};
    case DType::kTQ2_0: return {64, kNone, 1};
    case DType::kMXFP4: return {kNone, kNone, 6};
    case DType::kIQ1_S: return {0, kNone, 15 * 1.125F};
    case DType::kIQ1_M: return {kNone, kNone, 15 * 1.125F};
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S: return {0, kNone, 31 * 43 / 8.0F};
    case DType::kIQ3_XXS: return {0, kNone, 31 * 62 / 4.0F};
    case DType::kIQ3_S: return {0, kNone, 31 * 15};
    default: break;
  }
  CHORAL_CHECK(false, "not a block type");
  return {};
}

}  // namespace

float block_reach(DType type) { return block_fields(type).reach; }

void set_block_scales(DType type, std::byte* block, float d, float m) {
  const BlockFields at = block_fields(type);
  const uint16_t bits = to_float16(d).bits;
  if (type == DType::kMXFP4) block[0] = static_cast<std::byte>(127 + std::ilogb(d));
  for (int i = 0; i < 4 && type == DType::kIQ1_M; ++i) {  // a fourth in each of four words, above their scales
    std::byte& upper = block[49 + 2 * i];
    upper = (upper & std::byte{0x0F}) | static_cast<std::byte>((bits >> 4 * i & 15) << 4);
  }
  if (at.d != kNone) std::memcpy(block + at.d, &bits, sizeof bits);
  if (at.m == kNone) return;
  const uint16_t bits_of_m = to_float16(m).bits;
  std::memcpy(block + at.m, &bits_of_m, sizeof bits_of_m);
}

}  // namespace choral::kernels
