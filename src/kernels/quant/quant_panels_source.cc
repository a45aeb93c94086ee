#include "kernels/quant/quant_panels_source.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/float16.h"
#include "kernels/quant/code_grids.h"

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
// Q2_K      84  16 B scale | min << 4, one per 16 elements, 64 B, fp16 d, dmin; per half of 128 elements 32 bytes, row r of 32 in
//               bits 2r, 2r+1; value d scale n - dmin min
// Q3_K     110  32 B third bits: bit c of byte l is that of element 32c + l; 64 B as Q2_K; 12 B of 16 six-bit scales; fp16 d;
//               value d (scale - 32) (n - 4)
// IQ4_NL    18  fp16 d, 16 B as Q4_0; value d table[n]
// IQ4_XS   136  fp16 d, u16 upper and 4 B lower bits of 8 six-bit scales, 128 B: per 32 elements 16 bytes as Q4_0; value
//               d (scale - 32) table[n]
// TQ1_0     54  48 B and 4 B of digits to base 3, fp16 d; see read_ternary_digits; value d (n - 1)
// TQ2_0     66  64 B as Q2_K, fp16 d; value d (n - 1)
// MXFP4     17  u8 exponent e, 16 B as Q4_0; value 2^(e - 127) times the number of an E2M1 code
// Of a grid (code_grids.h) a byte is the lower bits of the index of eight elements' point, for IQ3 of four; scales are odd
// numbers. IQ1_S     50  fp16 d, 32 B, u16 for each 32 elements: four times three upper bits, three bits of scale, one for
// `less`; value
//               d scale (digit - 1 + 1/8, or with `less` - 1/8)
// IQ1_M     56  32 B, 16 B of nibbles: three upper bits and `less`; 4 u16 of four scales each and a fourth of d; value as IQ1_S
// IQ2_XXS   66  fp16 d, for each 32 elements 4 B and u32: four times seven bits of signs, four of scale; value
//               d/8 scale (8, 25, 43), with a sign
// IQ2_XS    74  fp16 d, 32 u16: nine bits of index, seven of signs; 8 B of nibbles, a scale for each 16
// IQ2_S     82  fp16 d, 32 B, 32 B of signs, 8 B of two upper bits, 8 B of scales as IQ2_XS
// IQ3_XXS   98  fp16 d, 64 B, u32 for each 32 elements as IQ2_XXS; value d/4 scale (4, 12, 20, 28, 36, 44, 52, 62), with a sign
// IQ3_S    110  fp16 d, 64 B, 8 B of an upper bit, 32 B of signs, 4 B of nibbles, a scale for each 32; value
//               d scale (2 digit + 1), with a sign

uint16_t read_u16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }
float half_at(const uint8_t* p) { return to_float(Float16{read_u16(p)}); }
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

// 2^(e - 128), for what E2M1 codes stand for is twice their number; the least two are subnormal.
float half_of_power(uint8_t e) { return std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1u) << 23); }

void read_block(DType type, const uint8_t* p, int index, QuantSourceGroup& out) {
  uint8_t(&n)[32] = out.n[index];
  out.d[index] = read_u16(p);
  switch (type) {
    case DType::kMXFP4:
      out.f[0] = half_of_power(p[0]);
      read_nibbles(p + 1, n);
      break;
    case DType::kQ8_0:
      for (int j = 0; j < 32; ++j) n[j] = p[2 + j] ^ 0x80;
      break;
    case DType::kIQ4_NL:
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

// Bit c of byte l is bit `place` of element 32c + l.
void add_high_bits(const uint8_t* bytes, int place, QuantSourceGroup& out) {
  for (int c = 0; c < 8; ++c) {
    for (int l = 0; l < 32; ++l) out.n[c][l] |= static_cast<uint8_t>((bytes[l] >> c & 1) << place);
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

// Rows of 32 elements by pairs of bits: four in each 32 bytes.
void read_pairs(const uint8_t* bytes, QuantSourceGroup& out) {
  for (int c = 0; c < 8; ++c) {
    for (int l = 0; l < 32; ++l) out.n[c][l] = bytes[32 * (c / 4) + l] >> 2 * (c % 4) & 3;
  }
}

// Q3_K's 16 six-bit scales less 32: nibbles of 8 bytes, low ones first, and pairs of bits of 4 bytes.
void read_six_bit_scales(const uint8_t* b, QuantSourceGroup& out) {
  for (int j = 0; j < 16; ++j) {
    const int low = b[j % 8] >> (j < 8 ? 0 : 4) & 15, high = b[8 + j % 4] >> 2 * (j / 4) & 3;
    out.scale[j] = static_cast<uint8_t>((low | high << 4) - 32);
  }
}

// A byte b holds the digits 0..2 of the fraction b / 256 to base 3, the first ones first: five of them, or four in the last 4
// bytes. Element i of the first 160 is digit i / 32 of byte i % 32, of the next 80 digit i / 16 of 16 bytes, of the last 16 digit
// i / 4 of 4 bytes.
void read_ternary_digits(const uint8_t* p, QuantSourceGroup& out) {
  constexpr int kPowers[] = {1, 3, 9, 27, 81};
  int element = 0;
  const auto read = [&](int bytes, int digits) {
    for (int d = 0; d < digits; ++d) {
      for (int i = 0; i < bytes; ++i, ++element) {
        const int rest = p[i] * kPowers[d] % 256;
        out.n[element / 32][element % 32] = static_cast<uint8_t>(rest * 3 / 256);
      }
    }
    p += bytes;
  };
  read(32, 5);
  read(16, 5);
  read(4, 4);
}

void read_iq4_xs(const uint8_t* p, QuantSourceGroup& out) {
  out.f[0] = half_at(p);
  const uint16_t upper = read_u16(p + 2);
  for (int c = 0; c < 8; ++c) {
    const int low = p[4 + c / 2] >> 4 * (c % 2) & 15, high = upper >> 2 * c & 3;
    out.scale[c] = static_cast<uint8_t>((low | high << 4) - 32);
    read_nibbles(p + 8 + 16 * c, out.n[c]);
  }
}

void read_q6_k(const uint8_t* p, QuantSourceGroup& out) {
  out.f[0] = half_at(p + 208);
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
}

// ---- Points of a grid. Element i of a point gets its digit, and above it bit i of `bits`.

void put_point(const uint8_t* digits, int elements, int digit_bits, int bits, uint8_t* n) {
  for (int i = 0; i < elements; ++i) n[i] = static_cast<uint8_t>(digits[i] | (bits >> i & 1) << digit_bits);
}
void put_eight(const uint8_t* points, int index, int bits, uint8_t* n) { put_point(points + 8 * index, 8, 2, bits, n); }
void put_four(const uint8_t* points, int index, int bits, uint8_t* n) { put_point(points + 4 * index, 4, 3, bits, n); }

// Seven signs; the eighth makes the number of negative ones even.
int eight_signs(uint32_t seven) { return static_cast<int>(seven & 127) | (std::popcount(seven & 127) & 1) << 7; }
int nibble(const uint8_t* bytes, int i) { return bytes[i / 2] >> 4 * (i % 2) & 15; }
uint8_t odd(int scale) { return static_cast<uint8_t>(2 * scale + 1); }

void read_iq1_s(const uint8_t* p, const uint8_t* points, QuantSourceGroup& out) {
  out.f[0] = half_at(p) / 8;
  for (int c = 0; c < 8; ++c) {
    const int upper = read_u16(p + 34 + 2 * c);
    out.scale[c] = odd(upper >> 12 & 7);
    for (int j = 0; j < 4; ++j) {
      put_eight(points, p[2 + 4 * c + j] | (upper >> 3 * j & 7) << 8, upper >> 15 != 0 ? 255 : 0, out.n[c] + 8 * j);
    }
  }
}

void read_iq1_m(const uint8_t* p, const uint8_t* points, QuantSourceGroup& out) {
  int d = 0;
  for (int i = 0; i < 4; ++i) {
    const int word = read_u16(p + 48 + 2 * i);
    d |= word >> 12 << 4 * i;
    for (int j = 0; j < 4; ++j) out.scale[4 * i + j] = odd(word >> 3 * j & 7);
  }
  out.f[0] = to_float(Float16{static_cast<uint16_t>(d)}) / 8;
  for (int i = 0; i < 32; ++i) {
    const int upper = nibble(p + 32, i);
    put_eight(points, p[i] | (upper & 7) << 8, upper >> 3 != 0 ? 255 : 0, out.n[i / 4] + 8 * (i % 4));
  }
}

void read_iq2_xxs(const uint8_t* p, const uint8_t* points, QuantSourceGroup& out) {
  out.f[0] = half_at(p) / 8;
  for (int c = 0; c < 8; ++c) {
    const uint8_t* indices = p + 2 + 8 * c;
    const uint32_t word = read_u32(indices + 4);
    out.scale[c] = odd(static_cast<int>(word >> 28));
    for (int j = 0; j < 4; ++j) put_eight(points, indices[j], eight_signs(word >> 7 * j), out.n[c] + 8 * j);
  }
}

void read_iq2_xs(const uint8_t* p, const uint8_t* points, QuantSourceGroup& out) {
  out.f[0] = half_at(p) / 8;
  for (int i = 0; i < 16; ++i) out.scale[i] = odd(nibble(p + 66, i));
  for (int i = 0; i < 32; ++i) {
    const uint32_t word = read_u16(p + 2 + 2 * i);
    put_eight(points, static_cast<int>(word & 511), eight_signs(word >> 9), out.n[i / 4] + 8 * (i % 4));
  }
}

void read_iq2_s(const uint8_t* p, const uint8_t* points, QuantSourceGroup& out) {
  out.f[0] = half_at(p) / 8;
  for (int i = 0; i < 16; ++i) out.scale[i] = odd(nibble(p + 74, i));
  for (int i = 0; i < 32; ++i) {
    const int upper = p[66 + i / 4] >> 2 * (i % 4) & 3;
    put_eight(points, p[2 + i] | upper << 8, p[34 + i], out.n[i / 4] + 8 * (i % 4));
  }
}

void read_iq3_xxs(const uint8_t* p, const uint8_t* points, QuantSourceGroup& out) {
  out.f[0] = half_at(p) / 4;
  for (int c = 0; c < 8; ++c) {
    const uint32_t word = read_u32(p + 66 + 4 * c);
    out.scale[c] = odd(static_cast<int>(word >> 28));
    for (int j = 0; j < 8; ++j) {
      put_four(points, p[2 + 8 * c + j], eight_signs(word >> 7 * (j / 2)) >> 4 * (j % 2), out.n[c] + 4 * j);
    }
  }
}

void read_iq3_s(const uint8_t* p, const uint8_t* points, QuantSourceGroup& out) {
  out.f[0] = half_at(p);
  for (int c = 0; c < 8; ++c) out.scale[c] = odd(nibble(p + 106, c));
  for (int i = 0; i < 64; ++i) {
    const int upper = p[66 + i / 8] >> i % 8 & 1;
    put_four(points, p[2 + i] | upper << 8, nibble(p + 74, i), out.n[i / 8] + 4 * (i % 8));
  }
}

void read_super_block(DType type, const uint8_t* p, QuantSourceGroup& out) {
  switch (type) {
    case DType::kQ6_K: return read_q6_k(p, out);
    case DType::kQ2_K:
      std::memcpy(out.scale, p, 16);
      read_pairs(p + 16, out);
      out.d[0] = read_u16(p + 80);
      out.m = read_u16(p + 82);
      return;
    case DType::kQ3_K:
      read_pairs(p + 32, out);
      add_high_bits(p, 2, out);
      read_six_bit_scales(p + 96, out);
      out.f[0] = half_at(p + 108);
      return;
    case DType::kIQ4_XS: return read_iq4_xs(p, out);
    case DType::kTQ1_0:
      read_ternary_digits(p, out);
      out.f[0] = half_at(p + 52);
      return;
    case DType::kTQ2_0:
      read_pairs(p, out);
      out.f[0] = half_at(p + 64);
      return;
    case DType::kIQ1_S: return read_iq1_s(p, grid_points(type), out);
    case DType::kIQ1_M: return read_iq1_m(p, grid_points(type), out);
    case DType::kIQ2_XXS: return read_iq2_xxs(p, grid_points(type), out);
    case DType::kIQ2_XS: return read_iq2_xs(p, grid_points(type), out);
    case DType::kIQ2_S: return read_iq2_s(p, grid_points(type), out);
    case DType::kIQ3_XXS: return read_iq3_xxs(p, grid_points(type), out);
    case DType::kIQ3_S: return read_iq3_s(p, grid_points(type), out);
    default: break;
  }
  out.d[0] = read_u16(p);
  out.m = read_u16(p + 2);
  read_scale_pairs(p + 4, out);
  read_k_nibbles(p + (type == DType::kQ4_K ? 16 : 48), out);
  if (type == DType::kQ5_K) add_high_bits(p + 16, 4, out);
}

}  // namespace

void read_quant_source(DType type, const std::byte* row, int64_t block, int blocks, QuantSourceGroup& out) {
  const DTypeFacts& f = facts(type);
  const auto* p = reinterpret_cast<const uint8_t*>(row) + block * 32 / f.block_elements * f.block_bytes;
  if (f.block_elements == 256) return read_super_block(type, p, out);
  for (int b = 0; b < blocks; ++b) read_block(type, p + b * f.block_bytes, b, out);
}

}  // namespace choral::kernels
