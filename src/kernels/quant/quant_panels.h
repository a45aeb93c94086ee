// The packed layout of block-quantised weights: panels of 16 output channels, k inside, the same bytes on every CPU level.
// A panel is a run of groups; a group is a header with the scales of 1, 2 or 8 blocks and then the blocks, in the order they are
// read. A block is 32 k of 16 lanes. Its bytes stand in VNNI order: 8 steps of 4 consecutive k, one step = 16 lanes x 4 k = 64
// bytes.
//   8 bits: step s is 64 bytes at 64s, stored as q + 128.
//   4 bits: 64 bytes at 64i hold step 2i in the low and step 2i+1 in the high nibbles (256 bytes).
//   5 bits: as 4, then 64 bytes of which bit s is the fifth bit of step s.
//   6 bits: as 4, then 2 x 64 bytes; bits 2(s%4), 2(s%4)+1 of plane s/4 are the upper bits of step s.
// A weight is (stored - zero) * scale + min with the source's own integers and scales, so nothing is lost. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/checked_math.h"
#include "tensor/dtype.h"

namespace choral::kernels {

inline constexpr int kQuantLanes = 16;      // output channels of a panel
inline constexpr int kQuantBlock = 32;      // k of a block
inline constexpr int kQuantSteps = 8;       // groups of 4 k in a block
inline constexpr int kQuantStepBytes = 64;  // 16 lanes x 4 k

// What the header of a group holds; each entry is 16 lanes.
enum class QuantScales : uint8_t {
  kD,    // 2 blocks: fp16 d[2].                                  w = d (n - zero)               Q8_0 Q4_0 Q5_0
  kDM,   // 1 block:  fp16 d, m.                                  w = d n + m                    Q4_1 Q5_1
  kK,    // 8 blocks: fp16 d, dmin; u8 scale[8], min[8].          w = d scale n - dmin min       Q4_K Q5_K
  kK16,  // 8 blocks: fp16 d, 32 unused bytes; i8 scale[16]       w = d scale (n - zero)         Q6_K: one scale per 16 k
};

// Facts of one form; constexpr so that kernels may be templates over it.
struct QuantForm {
  int bits;
  QuantScales scales;

  constexpr int group_blocks() const { return scales == QuantScales::kD ? 2 : scales == QuantScales::kDM ? 1 : 8; }
  constexpr int header_bytes() const { return scales == QuantScales::kD || scales == QuantScales::kDM ? 64 : 320; }
  constexpr int block_bytes() const { return bits * kQuantBlock * kQuantLanes / 8; }
  constexpr int group_bytes() const { return header_bytes() + group_blocks() * block_bytes(); }
  constexpr bool has_min() const { return scales == QuantScales::kDM || scales == QuantScales::kK; }
  constexpr int sub_blocks() const { return scales == QuantScales::kK16 ? 2 : 1; }
  constexpr int zero() const { return has_min() ? 0 : 1 << (bits - 1); }
  constexpr int64_t panel_bytes(int64_t blocks) const { return ceil_div(blocks, group_blocks()) * group_bytes(); }
  constexpr int64_t block_offset(int64_t block) const {
    return block / group_blocks() * group_bytes() + header_bytes() + block % group_blocks() * block_bytes();
  }
};

bool has_quant_form(DType type);
QuantForm quant_form(DType type);  // type must have one

// Writes one panel of `blocks` blocks: rows[lane] points to the GGUF row of each lane; fewer than 16 rows leave zero lanes.
// `panel` is zero-filled, form.panel_bytes(blocks) long.
void pack_quant_panel(DType type, std::span<const std::byte* const> rows, int64_t blocks, std::byte* panel);

// One lane of one block as plain numbers: w[i] = (n[i] - zero) * scale[i / (32 / sub_blocks)] + min.
struct QuantLaneBlock {
  uint8_t n[kQuantBlock];
  float scale[2];
  float min;
};
QuantLaneBlock read_quant_lane(QuantForm form, const std::byte* panel, int64_t block, int lane);

}  // namespace choral::kernels
