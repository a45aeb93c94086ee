// The packed layout of block-quantised weights: panels of 16 output channels, k inside, the same bytes on every CPU level.
// A panel is a run of groups; a group is a header with the scales of 1, 2, 4 or 8 blocks and then the blocks, in the order they
// are read. A block is 32 k of 16 lanes. Its bytes stand in VNNI order: 8 steps of 4 consecutive k, one step = 16 lanes x 4 k =
// 64 bytes.
//   2 bits: 2 x 64 bytes; bits 2(s%4), 2(s%4)+1 of plane s/4 are step s (128 bytes).
//   3 bits: as 2, then 64 bytes of which bit s is the third bit of step s.
//   8 bits: step s is 64 bytes at 64s, stored as q + 128.
//   4 bits: 64 bytes at 64i hold step 2i in the low and step 2i+1 in the high nibbles (256 bytes).
//   5 bits: as 4, then 64 bytes of which bit s is the fifth bit of step s.
//   6 bits: as 4, then 2 x 64 bytes; bits 2(s%4), 2(s%4)+1 of plane s/4 are the upper bits of step s.
// A weight is (stored - zero) * scale + min with the source's own integers and scales, so nothing is lost; where codes stand for
// other numbers (QuantCodes), what they stand for takes their place. Pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/checked_math.h"
#include "kernels/quant/quant_panels_source.h"
#include "tensor/dtype.h"

namespace choral::kernels {

inline constexpr int kQuantLanes = 16;      // output channels of a panel
inline constexpr int kQuantBlock = 32;      // k of a block
inline constexpr int kQuantSteps = 8;       // groups of 4 k in a block
inline constexpr int kQuantStepBytes = 64;  // 16 lanes x 4 k

// What the header of a group holds; each entry is 16 lanes. v is what a stored code stands for: see QuantCodes.
enum class QuantScales : uint8_t {
  kD,     // 2 blocks: fp16 d[2].                              w = d v                    Q8_0 Q4_0 Q5_0 IQ4_NL
  kDM,    // 1 block:  fp16 d, m.                              w = d v + m                Q4_1 Q5_1
  kK,     // 8 blocks: fp16 d, dmin; u8 scale[8], min[8].      w = d scale v - dmin min   Q4_K Q5_K
  kK8,    // 8 blocks: f32 d; i8 scale[8].                     w = d scale v              IQ4_XS IQ3 IQ2_XXS IQ1_S
  kK16,   // 8 blocks: f32 d; i8 scale[16].                    w = d scale v              Q3_K Q6_K IQ2 IQ1_M: a scale per 16 k
  kK16M,  // 8 blocks: fp16 d, dmin; u8 scale | min << 4 [16]. w = d scale v - dmin min   Q2_K: a pair per 16 k
  kF,     // 1, 2, 4 or 8 blocks: f32 d.                       w = d v                    gemm_integers.h; TQ1_0 TQ2_0 MXFP4
  kFM,    // 1, 2, 4 or 8 blocks: f32 d, m.                    w = d v + m                gemm_integers.h with zero points
};

// What a stored code n stands for.
enum class QuantCodes : uint8_t {
  kLinear,   // n - zero()
  kTernary,  // 2 bits: n - 1
  kIQ4,      // 4 bits: the entry of IQ4_NL's and IQ4_XS's table
  kE2M1,     // 4 bits: twice the float of a sign, two exponent bits and a mantissa bit: 0 1 2 3 4 6 8 12 and these negated
  // Digits of a grid's points (code_grids.h), and above them a bit:
  kIQ1,     // 3 bits: 8 (digit - 1), and 1 more, or with the bit 1 less
  kIQ2,     // 3 bits: 8, 25 or 43, with the bit negated
  kIQ3XXS,  // 4 bits: 4 12 20 28 36 44 52 62, with the bit negated
  kIQ3S,    // 4 bits: 1 3 5 7 9 11 13 15, with the bit negated
};
constexpr bool is_of_grid(QuantCodes codes) { return codes >= QuantCodes::kIQ1; }
// Of a codebook: what stands for each code, plus the form's zero().
constexpr std::array<uint8_t, 16> quant_code_values(QuantCodes codes) {
  switch (codes) {
    case QuantCodes::kIQ4: return {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
    case QuantCodes::kE2M1: return {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
    case QuantCodes::kIQ1: return {57, 65, 73, 64, 55, 63, 71, 64};
    case QuantCodes::kIQ2: return {72, 89, 107, 64, 56, 39, 21, 64};
    case QuantCodes::kIQ3XXS: return {68, 76, 84, 92, 100, 108, 116, 126, 60, 52, 44, 36, 28, 20, 12, 2};
    case QuantCodes::kIQ3S: return {65, 67, 69, 71, 73, 75, 77, 79, 63, 61, 59, 57, 55, 53, 51, 49};
    case QuantCodes::kLinear:
    case QuantCodes::kTernary: break;
  }
  return {};
}

// Facts of one form; constexpr so that kernels may be templates over it.
struct QuantForm {
  int bits;
  QuantScales scales;
  QuantCodes codes = QuantCodes::kLinear;
  int blocks = 0;  // of a group of kF and kFM

  constexpr bool operator==(const QuantForm&) const = default;
  constexpr bool has_float_scales() const { return scales == QuantScales::kF || scales == QuantScales::kFM; }
  constexpr int group_blocks() const {
    if (has_float_scales()) return blocks;
    return scales == QuantScales::kD ? 2 : scales == QuantScales::kDM ? 1 : 8;
  }
  constexpr int header_bytes() const {
    switch (scales) {
      case QuantScales::kD:
      case QuantScales::kDM:
      case QuantScales::kF: return 64;
      case QuantScales::kFM: return 128;
      case QuantScales::kK8: return 192;
      default: return 320;
    }
  }
  constexpr int block_bytes() const { return bits * kQuantBlock * kQuantLanes / 8; }
  constexpr int group_bytes() const { return header_bytes() + group_blocks() * block_bytes(); }
  constexpr bool has_min() const {
    return scales == QuantScales::kDM || scales == QuantScales::kK || scales == QuantScales::kK16M || scales == QuantScales::kFM;
  }
  constexpr int sub_blocks() const { return scales == QuantScales::kK16 || scales == QuantScales::kK16M ? 2 : 1; }
  constexpr bool is_codebook() const { return codes != QuantCodes::kLinear && codes != QuantCodes::kTernary; }
  constexpr int zero() const {
    switch (codes) {
      case QuantCodes::kTernary: return 1;
      case QuantCodes::kIQ4: return 128;
      case QuantCodes::kE2M1: return 12;
      case QuantCodes::kIQ1:
      case QuantCodes::kIQ2:
      case QuantCodes::kIQ3XXS:
      case QuantCodes::kIQ3S: return 64;
      case QuantCodes::kLinear: break;
    }
    return has_min() && scales != QuantScales::kFM ? 0 : 1 << (bits - 1);
  }
  // Of v + zero(), which is never negative, as kernels add products up: 2 and 3 bits as 5.
  constexpr int value_bits() const {
    if (codes == QuantCodes::kIQ4) return 8;
    if (is_of_grid(codes)) return 7;
    return codes == QuantCodes::kE2M1 || bits < 4 ? 5 : bits;
  }
  // The last group may be shorter.
  constexpr int64_t panel_bytes(int64_t k_blocks) const {
    const int64_t rest = k_blocks % group_blocks();
    return k_blocks / group_blocks() * group_bytes() + (rest == 0 ? 0 : header_bytes() + rest * block_bytes());
  }
  constexpr int64_t block_offset(int64_t block) const {
    return block / group_blocks() * group_bytes() + header_bytes() + block % group_blocks() * block_bytes();
  }
};

bool has_quant_form(DType type);
QuantForm quant_form(DType type);  // type must have one

// Writes one panel of `blocks` blocks: rows[lane] points to the GGUF row of each lane; fewer than 16 rows leave zero lanes.
// `panel` is zero-filled, form.panel_bytes(blocks) long.
void pack_quant_panel(DType type, std::span<const std::byte* const> rows, int64_t blocks, std::byte* panel);

// Writes one lane of a group's first `blocks` blocks.
void write_quant_group(QuantForm form, int blocks, const QuantSourceGroup& source, int lane, std::byte* group);

// One lane of one block as plain numbers: w[i] = (n[i] - zero) * scale[s] + min[s], s = i / (32 / sub_blocks). n of a codebook is
// what stands for the code, plus zero.
struct QuantLaneBlock {
  uint8_t n[kQuantBlock];
  float scale[2];
  float min[2];
};
QuantLaneBlock lane_block(QuantForm form, const QuantSourceGroup& group, int block);
QuantLaneBlock read_quant_lane(QuantForm form, const std::byte* panel, int64_t block, int lane);

}  // namespace choral::kernels
