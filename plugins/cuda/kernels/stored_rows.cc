#include "stored_rows.h"

#include <cmath>
#include <cstring>

#include "float16.h"
#include "packed_weight.h"

namespace choral_cuda {
namespace {

float half_at(const unsigned char* p) {
  uint16_t half;
  std::memcpy(&half, p, sizeof half);
  return from_f16(half);
}

// Element i of 32 packed in nibbles: first the low ones of 16 bytes, then the high ones.
int nibble(const unsigned char* p, int i) { return i < 16 ? p[i] % 16 : p[i - 16] / 16; }
int bit(const unsigned char* p, int i) { return p[i / 8] >> i % 8 & 1; }

// Of the twelve bytes of eight (scale, minimum) pairs of six bits.
int six_bits_of_scale(const unsigned char* p, int j) { return j < 4 ? p[j] & 63 : (p[j + 4] & 15) | (p[j - 4] >> 6) << 4; }
int six_bits_of_min(const unsigned char* p, int j) { return j < 4 ? p[j + 4] & 63 : p[j + 4] >> 4 | (p[j] >> 6) << 4; }

constexpr int8_t kIQ4Values[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr int8_t kTwiceE2M1[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// 32 elements with one scale.
void read_small_block(int32_t dtype, const unsigned char* p, int8_t* q, float* scale, float* min) {
  *scale = dtype == CHORAL_MXFP4 ? std::ldexp(1.0f, p[0] - 128) : half_at(p);
  *min = dtype == CHORAL_Q4_1 || dtype == CHORAL_Q5_1 ? half_at(p + 2) : 0.0f;
  for (int i = 0; i < 32; ++i) {
    int value = 0;
    if (dtype == CHORAL_Q8_0) value = static_cast<signed char>(p[2 + i]);
    if (dtype == CHORAL_Q4_0) value = nibble(p + 2, i) - 8;
    if (dtype == CHORAL_Q4_1) value = nibble(p + 4, i);
    if (dtype == CHORAL_Q5_0) value = nibble(p + 6, i) + 16 * bit(p + 2, i) - 16;
    if (dtype == CHORAL_Q5_1) value = nibble(p + 8, i) + 16 * bit(p + 4, i);
    if (dtype == CHORAL_IQ4_NL) value = kIQ4Values[nibble(p + 2, i)];
    if (dtype == CHORAL_MXFP4) value = kTwiceE2M1[nibble(p + 1, i)];
    q[i] = static_cast<int8_t>(value);
  }
}

// 256 elements: eight groups of 32 with a minimum.
void read_q45_k(int32_t dtype, const unsigned char* p, int8_t* q, float* scales, float* mins) {
  const unsigned char* low = p + (dtype == CHORAL_Q4_K ? 16 : 48);
  for (int group = 0; group < 8; ++group) {
    scales[group] = half_at(p) * static_cast<float>(six_bits_of_scale(p + 4, group));
    mins[group] = -half_at(p + 2) * static_cast<float>(six_bits_of_min(p + 4, group));
    for (int i = 0; i < 32; ++i) {
      const int byte = low[group / 2 * 32 + i], value = group % 2 == 0 ? byte % 16 : byte / 16;
      q[group * 32 + i] = static_cast<int8_t>(dtype == CHORAL_Q4_K ? value : value + 16 * (p[16 + i] >> group & 1));
    }
  }
}

// 256 elements: sixteen groups of 16.
void read_q6_k(const unsigned char* p, int8_t* q, float* scales) {
  for (int group = 0; group < 16; ++group) {
    scales[group] = half_at(p + 208) * static_cast<float>(static_cast<signed char>(p[192 + group]));
  }
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, quarter = i % 128 / 32, at = i % 32;
    const int low = p[half * 64 + quarter % 2 * 32 + at], high = p[128 + half * 32 + at] >> 2 * quarter & 3;
    q[i] = static_cast<int8_t>((quarter < 2 ? low % 16 : low / 16) + 16 * high - 32);
  }
}

}  // namespace

BlockType block_type(int32_t dtype) {
  switch (dtype) {
    case CHORAL_Q8_0: return {32, 34, 32, false, false};
    case CHORAL_Q4_0: return {32, 18, 32, false, true};
    case CHORAL_Q4_1: return {32, 20, 32, true, true};
    case CHORAL_Q5_0: return {32, 22, 32, false, false};
    case CHORAL_Q5_1: return {32, 24, 32, true, false};
    case CHORAL_Q4_K: return {256, 144, 32, true, true};
    case CHORAL_Q5_K: return {256, 176, 32, true, false};
    case CHORAL_Q6_K: return {256, 210, 16, false, false};
    case CHORAL_IQ4_NL: return {32, 18, 32, false, false};
    case CHORAL_MXFP4: return {32, 17, 32, false, false};
    default: return {};
  }
}

int64_t stored_row_bytes(int32_t dtype, int64_t cols) {
  if (dtype == CHORAL_F32) return 4 * cols;
  if (dtype == CHORAL_F16 || dtype == CHORAL_BF16) return 2 * cols;
  if (dtype == CHORAL_I8 || dtype == CHORAL_E4M3) return cols;
  const BlockType type = block_type(dtype);
  return type.elements == 0 ? 0 : (cols + type.elements - 1) / type.elements * type.bytes;
}

void read_blocks(int32_t dtype, const unsigned char* row, int64_t cols, IntegerRow* out) {
  const BlockType type = block_type(dtype);
  out->q.resize(cols);
  out->scales.resize(cols / type.group);
  out->mins.assign(cols / type.group, 0.0f);
  for (int64_t i = 0; i < cols; i += type.elements, row += type.bytes) {
    int8_t* q = &out->q[i];
    float* scales = &out->scales[i / type.group];
    float* mins = &out->mins[i / type.group];
    if (dtype == CHORAL_Q4_K || dtype == CHORAL_Q5_K) {
      read_q45_k(dtype, row, q, scales, mins);
    } else if (dtype == CHORAL_Q6_K) {
      read_q6_k(row, q, scales);
    } else {
      read_small_block(dtype, row, q, scales, mins);
    }
  }
}

void read_floats(int32_t dtype, const unsigned char* row, int64_t cols, std::vector<float>* out) {
  out->resize(cols);
  if (const BlockType type = block_type(dtype); type.elements != 0) {
    IntegerRow integers;
    read_blocks(dtype, row, cols, &integers);
    for (int64_t i = 0; i < cols; ++i) {
      (*out)[i] = integers.scales[i / type.group] * integers.q[i] + integers.mins[i / type.group];
    }
    return;
  }
  if (dtype == CHORAL_F32) std::memcpy(out->data(), row, cols * sizeof(float));
  for (int64_t i = 0; i < cols && dtype != CHORAL_F32; ++i) {
    uint16_t half = 0;
    if (dtype != CHORAL_E4M3) std::memcpy(&half, row + 2 * i, sizeof half);  // files promise no alignment
    (*out)[i] = dtype == CHORAL_E4M3 ? from_e4m3(row[i]) : dtype == CHORAL_F16 ? from_f16(half) : from_bf16(half);
  }
}

const unsigned char* stored_row(const choral_weight& weight, int64_t row) {
  const choral_weight_part* part = weight.parts;
  while (row >= part->rows) row -= (part++)->rows;
  return static_cast<const unsigned char*>(part->data) + (part->order == nullptr ? row : part->order[row]) * part->row_bytes;
}

}  // namespace choral_cuda
