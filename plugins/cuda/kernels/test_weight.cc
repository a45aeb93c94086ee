#include "test_weight.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "float16.h"
#include "stored_rows.h"

namespace choral_cuda {
namespace {

void put_half(unsigned char* at, float value) {
  const uint16_t half = to_f16(value);
  std::memcpy(at, &half, sizeof half);
}

class Builder {
 public:
  Builder(TestWeight& w, uint32_t seed) : w_(w), random_(seed) {}

  // Stored row `i`, and W's elements from it in stored order of columns.
  std::vector<double> row(int64_t i) {
    unsigned char* at = &w_.stored[i * w_.row_bytes];
    if (block_type(w_.stored_dtype).elements != 0) return blocks(at);
    std::vector<double> values;
    for (int64_t k = 0; k < w_.cols; ++k) values.push_back(element(at, k));
    return values;
  }
  int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  float unit() { return std::uniform_real_distribution<float>(-1, 1)(random_); }

 private:
  double element(unsigned char* row, int64_t k) {
    if (w_.stored_dtype == CHORAL_I8) {
      const bool code = w_.codebook == CHORAL_E2M1;
      const int q = code ? below(16) : w_.bits == 4 ? below(16) - 8 : below(256) - 128;
      row[k] = static_cast<unsigned char>(q);
      constexpr double kE2M1[] = {0, .5, 1, 1.5, 2, 3, 4, 6};
      return code ? (q < 8 ? kE2M1[q] : -kE2M1[q - 8]) : q;
    }
    if (w_.stored_dtype == CHORAL_E4M3) {
      row[k] = static_cast<unsigned char>(below(256));
      if ((row[k] & 0x7f) == 0x7f) --row[k];  // no NaN
      return from_e4m3(row[k]);
    }
    const float value = w_.values ? w_.values() : unit();
    if (w_.stored_dtype == CHORAL_F32) {
      std::memcpy(row + 4 * k, &value, 4);
      return w_.dtype == CHORAL_BF16 ? from_bf16(to_bf16(value)) : value;
    }
    const uint16_t half = w_.stored_dtype == CHORAL_F16 ? to_f16(value) : to_bf16(value);
    std::memcpy(row + 2 * k, &half, 2);
    return w_.stored_dtype == CHORAL_F16 ? from_f16(half) : from_bf16(half);
  }

  // Numbers first, then the bytes that a file has of them.
  std::vector<double> blocks(unsigned char* at) {
    const BlockType type = block_type(w_.stored_dtype);
    std::vector<double> values;
    for (int64_t block = 0; block < w_.cols / type.elements; ++block, at += type.bytes) {
      std::fill_n(at, type.bytes, 0);
      if (type.elements == 32) {
        small_block(at, &values);
      } else {
        large_block(at, &values);
      }
    }
    return values;
  }

  void small_block(unsigned char* at, std::vector<double>* values) {
    const int32_t dtype = w_.stored_dtype;
    const bool has_min = dtype == CHORAL_Q4_1 || dtype == CHORAL_Q5_1, five = dtype == CHORAL_Q5_0 || dtype == CHORAL_Q5_1;
    float scale = from_f16(to_f16(unit() / 8)), min = has_min ? from_f16(to_f16(unit())) : 0.0f;
    put_half(at, scale);
    if (has_min) put_half(at + 2, min);
    if (dtype == CHORAL_MXFP4)
      at[0] = static_cast<unsigned char>(120 + below(8)), at[1] = 0, scale = std::ldexp(0.5f, at[0] - 127);
    unsigned char* numbers = at + (dtype == CHORAL_MXFP4 ? 1 : has_min ? 4 : 2);
    for (int i = 0; i < 32; ++i) {
      const int n = dtype == CHORAL_Q8_0 ? below(256) : below(five ? 32 : 16);
      if (dtype == CHORAL_Q8_0) {
        numbers[i] = static_cast<unsigned char>(n);
      } else {
        if (five) numbers[i / 8] = static_cast<unsigned char>(numbers[i / 8] | n / 16 << i % 8);
        unsigned char& byte = numbers[(five ? 4 : 0) + i % 16];
        byte = static_cast<unsigned char>(byte | n % 16 << (i < 16 ? 0 : 4));
      }
      constexpr int kIQ4[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
      constexpr int kE2M1[] = {0, 1, 2, 3, 4, 6, 8, 12};
      const int q = dtype == CHORAL_Q8_0     ? static_cast<signed char>(n)
                    : dtype == CHORAL_Q4_0   ? n - 8
                    : dtype == CHORAL_Q5_0   ? n - 16
                    : dtype == CHORAL_IQ4_NL ? kIQ4[n]
                    : dtype == CHORAL_MXFP4  ? (n < 8 ? kE2M1[n] : -kE2M1[n - 8])
                                             : n;
      values->push_back(double{scale} * q + min);
    }
  }

  void large_block(unsigned char* at, std::vector<double>* values) {
    const bool q6 = w_.stored_dtype == CHORAL_Q6_K, q5 = w_.stored_dtype == CHORAL_Q5_K;
    const float d = from_f16(to_f16(unit() / 64)), m = from_f16(to_f16(unit() / 64));
    put_half(at + (q6 ? 208 : 0), d);
    if (!q6) put_half(at + 2, m);
    for (int group = 0; group < (q6 ? 16 : 8); ++group) {
      const int scale = q6 ? below(256) - 128 : below(64), min = q6 ? 0 : below(64);
      if (q6) {
        at[192 + group] = static_cast<unsigned char>(scale);
      } else if (group < 4) {
        at[4 + group] = static_cast<unsigned char>(at[4 + group] | scale);
        at[8 + group] = static_cast<unsigned char>(at[8 + group] | min);
      } else {
        at[8 + group] = static_cast<unsigned char>(scale % 16 | min % 16 << 4);
        at[group] = static_cast<unsigned char>(at[group] | scale / 16 << 6);
        at[4 + group] = static_cast<unsigned char>(at[4 + group] | min / 16 << 6);
      }
      for (int i = 0; i < (q6 ? 16 : 32); ++i) {
        const int n = below(q6 ? 64 : q5 ? 32 : 16), k = group * (q6 ? 16 : 32) + i, l = k % 32;
        if (q6) {
          const int half = k / 128, quarter = k % 128 / 32;
          unsigned char& low = at[half * 64 + quarter % 2 * 32 + l];
          low = static_cast<unsigned char>(low | n % 16 << (quarter < 2 ? 0 : 4));
          unsigned char& high = at[128 + half * 32 + l];
          high = static_cast<unsigned char>(high | n / 16 << 2 * quarter);
          values->push_back(double{d} * scale * (n - 32));
        } else {
          unsigned char& low = at[(q5 ? 48 : 16) + group / 2 * 32 + l];
          low = static_cast<unsigned char>(low | n % 16 << (group % 2 == 0 ? 0 : 4));
          if (q5) at[16 + l] = static_cast<unsigned char>(at[16 + l] | n / 16 << group);
          values->push_back(double{d} * scale * n - double{m} * min);
        }
      }
    }
  }

  TestWeight& w_;
  std::mt19937 random_;
};

}  // namespace

void TestWeight::make(int64_t rows_, int64_t cols_, uint32_t seed) {
  rows = rows_, cols = cols_;
  Builder build(*this, seed);
  const int64_t stored_rows = has_order ? rows + 3 : rows;
  row_bytes = stored_row_bytes(stored_dtype, cols) + 5;  // rows of files are not aligned
  stored.assign(stored_rows * row_bytes, 0xff);
  const int64_t groups = group == 0 ? 1 : (cols + group - 1) / group;
  std::vector<std::vector<double>> stored_w;
  for (int64_t i = 0; i < stored_rows; ++i) stored_w.push_back(build.row(i));
  if (has_order) {
    order.resize(rows);
    for (int64_t i = 0; i < rows; ++i) order[i] = static_cast<int32_t>((i * 7 + 2) % stored_rows);
  }
  if (has_k_order) {
    k_order.resize(cols);
    std::iota(k_order.begin(), k_order.end(), 0);
    std::shuffle(k_order.begin(), k_order.end(), std::mt19937(seed));
  }
  for (int64_t i = 0; i < rows * groups && has_scales; ++i) {
    scales.push_back((0.5f + build.unit() / 4) / (stored_dtype == CHORAL_E4M3 ? 64.0f : 1 << (bits - 1)));
    if (has_zeros) zeros.push_back(static_cast<int16_t>(build.below(15) - 7));
  }
  for (int64_t i = 0; i < rows; ++i) {
    std::vector<double> row(cols);
    q.emplace_back();
    for (int64_t k = 0; k < cols; ++k) {
      double value = stored_w[has_order ? order[i] : i][k];
      q.back().push_back(static_cast<int>(value));
      const int64_t at = i * groups + (group == 0 ? 0 : k / group);
      if (has_zeros) value -= zeros[at];
      if (has_scales) value *= scales[at];
      if (has_fixed_input) value /= input_scale;
      row[has_k_order ? k_order[k] : k] = value;
    }
    w.push_back(row);
  }

  const int64_t first_rows = rows / 3;
  std::vector<choral_weight_part> parts{{stored.data(), first_rows, row_bytes, has_order ? order.data() : nullptr},
                                        {stored.data() + (has_order ? 0 : first_rows * row_bytes), rows - first_rows, row_bytes,
                                         has_order ? order.data() + first_rows : nullptr}};
  const choral_weight weight{CHORAL_HEADER(choral_weight),
                             stored_dtype,
                             dtype,
                             cols,
                             parts.data(),
                             static_cast<int64_t>(parts.size()),
                             bits,
                             codebook,
                             activations,
                             has_fixed_input,
                             input_scale,
                             input_offset,
                             group,
                             scales.data(),
                             static_cast<int64_t>(scales.size()),
                             zeros.data(),
                             static_cast<int64_t>(zeros.size()),
                             k_order.data(),
                             static_cast<int64_t>(k_order.size())};
  const char* reason = plan_packing(weight, &plan);
  ASSERT_EQ(reason, nullptr) << name << ": " << reason;
  image.assign(plan.image_bytes, 0xff);
  pack_tiles(weight, plan, 0, 1, image.data());
  if (plan.row_tiles > 1) pack_tiles(weight, plan, 1, plan.row_tiles, image.data() + plan.weight.tile_bytes);
  pack_tail(plan, image.data() + plan.tail_offset);
  packed = plan.placed(image.data());
}

std::vector<TestWeight> every_form() {
  std::vector<TestWeight> forms;
  const auto add = [&](TestWeight w) { forms.push_back(std::move(w)); };
  add({.name = "f32", .has_order = true});
  add({.name = "bf16", .stored_dtype = CHORAL_BF16, .dtype = CHORAL_BF16});
  add({.name = "f32 as bf16", .dtype = CHORAL_BF16, .has_order = true});
  add({.name = "f16", .stored_dtype = CHORAL_F16, .dtype = CHORAL_F16});
  for (const auto& [name, type] : {std::pair{"q8_0", CHORAL_Q8_0},
                                   {"q4_0", CHORAL_Q4_0},
                                   {"q4_1", CHORAL_Q4_1},
                                   {"q5_0", CHORAL_Q5_0},
                                   {"q5_1", CHORAL_Q5_1},
                                   {"iq4_nl", CHORAL_IQ4_NL},
                                   {"mxfp4", CHORAL_MXFP4},
                                   {"q4_k", CHORAL_Q4_K},
                                   {"q5_k", CHORAL_Q5_K},
                                   {"q6_k", CHORAL_Q6_K}}) {
    add({.name = name, .stored_dtype = type, .dtype = type});
  }
  add({.name = "q4_1 by int8 blocks", .stored_dtype = CHORAL_Q4_1, .dtype = CHORAL_Q4_1, .activations = CHORAL_X_INT8_BLOCKS});
  add({.name = "q8_0 as f32", .stored_dtype = CHORAL_Q8_0, .dtype = CHORAL_F32});
  add({.name = "int4 in groups of 128",
       .stored_dtype = CHORAL_I8,
       .dtype = CHORAL_I8,
       .bits = 4,
       .group = 128,
       .has_scales = true,
       .has_zeros = true,
       .has_k_order = true});
  add({.name = "int4 a row", .stored_dtype = CHORAL_I8, .dtype = CHORAL_I8, .bits = 4, .has_scales = true});
  add({.name = "e2m1 in groups of 32",
       .stored_dtype = CHORAL_I8,
       .dtype = CHORAL_I8,
       .bits = 4,
       .codebook = CHORAL_E2M1,
       .group = 32,
       .has_scales = true});
  add({.name = "int8 in groups of 64", .stored_dtype = CHORAL_I8, .dtype = CHORAL_I8, .group = 64, .has_scales = true});
  add({.name = "e4m3 a row", .stored_dtype = CHORAL_E4M3, .dtype = CHORAL_E4M3, .has_scales = true});
  add({.name = "e4m3 in groups of 128", .stored_dtype = CHORAL_E4M3, .dtype = CHORAL_E4M3, .group = 128, .has_scales = true});
  add({.name = "bf16 whose x is not asked for in int8 blocks",
       .stored_dtype = CHORAL_BF16,
       .dtype = CHORAL_BF16,
       .activations = CHORAL_X_INT8_BLOCKS});
  add({.name = "bf16 by 16 bits", .stored_dtype = CHORAL_BF16, .dtype = CHORAL_BF16, .activations = CHORAL_X_16});
  add({.name = "f16 by 16 bits", .stored_dtype = CHORAL_F16, .dtype = CHORAL_F16, .activations = CHORAL_X_16});
  add({.name = "q4_1 by 16 bits", .stored_dtype = CHORAL_Q4_1, .dtype = CHORAL_Q4_1, .activations = CHORAL_X_16});
  add({.name = "int8 in groups of 64 by 16 bits",
       .stored_dtype = CHORAL_I8,
       .dtype = CHORAL_I8,
       .activations = CHORAL_X_16,
       .group = 64,
       .has_scales = true});
  add({.name = "e4m3 a row by 16 bits",
       .stored_dtype = CHORAL_E4M3,
       .dtype = CHORAL_E4M3,
       .activations = CHORAL_X_16,
       .has_scales = true});
  add({.name = "int8 rows",
       .stored_dtype = CHORAL_I8,
       .dtype = CHORAL_I8,
       .activations = CHORAL_X_INT8_ROWS,
       .has_scales = true});
  add({.name = "int8 rows, fixed",
       .stored_dtype = CHORAL_I8,
       .dtype = CHORAL_I8,
       .activations = CHORAL_X_INT8_ROWS,
       .has_scales = true,
       .has_fixed_input = true,
       .input_scale = 0.0076f,
       .input_offset = 5});
  return forms;
}

}  // namespace choral_cuda
