#include "kernels/quant/quant_panels_source.h"

#include <cstring>

#include "base/check.h"

namespace choral::kernels {
namespace {

// type   bytes  layout of a block (32 elements) or super-block (256)
// Q8_0      34  fp16 d, i8 q[32]
// Q4_0      18  fp16 d, 16 B: element j is the low nibble of byte j, j+16 the high one; value d (n - 8)
// Q4_1      20  fp16 d, m, 16 B as Q4_0; value d n + m
// Q5_0      22  fp16 d, u32 high, 16 B as Q4_0; bit j of `high` is the fifth bit of element j; value d (n - 16)
// Q5_1      24  fp16 d, m, u32 high, 16 B; value d n + m
// Q4_K     144  fp16 d, dmin, 12 B of six-bit (scale, min) pairs, 128 B: per 64 elements 32 bytes, low nibbles first
// Q5_K     176  fp16 d, dmin, 12 B, 32 B high: bit c of byte l is the fifth bit of element 32c + l; 128 B as Q4_K
// Q6_K     210  128 B low, 64 B high, i8 scale[16], fp16 d; per half of 128 elements, row r of 32: low nibbles of low[32(r%2)..]
//               for r < 2, else the high ones; bits 2r, 2r+1 of high[0..32]; value d scale (n - 32), one scale per 16

uint16_t read_u16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }
uint32_t read_u32(const uint8_t* p) { return static_cast<uint32_t>(read_u16(p)) | static_cast<uint32_t>(read_u16(p + 2)) << 16; }

void read_nibbles(const uint8_t* bytes, uint8_t (&n)[32]) {
  for (int j = 0; j < 16; ++j) {
    n[j] = bytes[j] & 15;
    n[j + 16] = bytes[j] >> 4;
  }
}

void add_fifth_bits(uint32_t high, uint8_t (&n)[32]) {
  for (int j = 0; j < 32; ++j) n[j] |= static_cast<uint8_t>((high >> j & 1u) << 4);
}

void read_block(DType type, const uint8_t* p, int index, QuantSourceGroup& out) {
  uint8_t(&n)[32] = out.n[index];
  out.d[index] = read_u16(p);
  switch (type) {
    case DType::kQ8_0:
      for (int j = 0; j < 32; ++j) n[j] = p[2 + j] ^ 0x80;
      break;
    case DType::kQ4_0: read_nibbles(p + 2, n); break;
    case DType::kQ4_1:
      out.m = read_u16(p + 2);
      read_nibbles(p + 4, n);
      break;
    case DType::kQ5_0:
      read_nibbles(p + 6, n);
      add_fifth_bits(read_u32(p + 2), n);
      break;
    case DType::kQ5_1:
      out.m = read_u16(p + 2);
      read_nibbles(p + 8, n);
      add_fifth_bits(read_u32(p + 4), n);
      break;
    default: CHORAL_CHECK(false, "not a 32-element block type");
  }
}

// Eight six-bit (scale, min) pairs in 12 bytes: four whole ones in the low bits of bytes 0-3 and 4-7, whose two upper bits
// complete the nibbles of bytes 8-11.
void read_scale_pairs(const uint8_t* b, QuantSourceGroup& out) {
  for (int j = 0; j < 4; ++j) {
    out.scale[j] = b[j] & 63;
    out.min[j] = b[j + 4] & 63;
    out.scale[j + 4] = static_cast<uint8_t>((b[j + 8] & 15) | (b[j] >> 6) << 4);
    out.min[j + 4] = static_cast<uint8_t>((b[j + 8] >> 4) | (b[j + 4] >> 6) << 4);
  }
}

void read_k_nibbles(const uint8_t* bytes, QuantSourceGroup& out) {
  for (int c = 0; c < 4; ++c) {
    for (int l = 0; l < 32; ++l) {
      out.n[2 * c][l] = bytes[32 * c + l] & 15;
      out.n[2 * c + 1][l] = bytes[32 * c + l] >> 4;
    }
  }
}

void read_super_block(DType type, const uint8_t* p, QuantSourceGroup& out) {
  if (type == DType::kQ6_K) {
    for (int half = 0; half < 2; ++half) {
      const uint8_t* low = p + 64 * half;
      const uint8_t* high = p + 128 + 32 * half;
      for (int r = 0; r < 4; ++r) {
        for (int l = 0; l < 32; ++l) {
          const int nibble = low[32 * (r % 2) + l] >> (r < 2 ? 0 : 4) & 15;
          out.n[4 * half + r][l] = static_cast<uint8_t>(nibble | (high[l] >> 2 * r & 3) << 4);
        }
      }
    }
    std::memcpy(out.scale, p + 192, 16);
    out.d[0] = read_u16(p + 208);
    return;
  }
  out.d[0] = read_u16(p);
  out.m = read_u16(p + 2);
  read_scale_pairs(p + 4, out);
  read_k_nibbles(p + (type == DType::kQ4_K ? 16 : 48), out);
  if (type == DType::kQ4_K) return;
  for (int c = 0; c < 8; ++c) {
    for (int l = 0; l < 32; ++l) out.n[c][l] |= static_cast<uint8_t>((p[16 + l] >> c & 1) << 4);
  }
}

}  // namespace

void read_quant_source(DType type, const std::byte* row, int64_t block, int blocks, QuantSourceGroup& out) {
  const DTypeFacts& f = facts(type);
  const auto* p = reinterpret_cast<const uint8_t*>(row) + block * 32 / f.block_elements * f.block_bytes;
  if (f.block_elements == 256) return read_super_block(type, p, out);
  for (int b = 0; b < blocks; ++b) read_block(type, p + b * f.block_bytes, b, out);
}

}  // namespace choral::kernels
