#include "kernels/attention/kv_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/float16.h"
#include "kernels/ref/row_quant.h"

namespace choral::kernels {
namespace {

TEST(KvCacheTest, WritesTheStatedLayoutAndNothingElse) {
  constexpr int64_t kBlocks = 3, kHeads = 2, kDim = 5, kValueDim = 7;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    auto keys = *AlignedBuffer::allocate(kBlocks * kv_key_block_bytes(dtype, kHeads, kDim));
    auto values = *AlignedBuffer::allocate(kBlocks * kv_value_block_bytes(dtype, kHeads, kValueDim));
    EXPECT_EQ(kv_block_bytes(dtype, kHeads, kDim, kValueDim) * kBlocks,
              static_cast<int64_t>(keys.size_bytes() + values.size_bytes()));
    const KvCacheView cache{keys.data(), values.data(), dtype, kBlocks, kHeads, kDim, kValueDim};
    const std::vector<int64_t> slots = {2 * 32 + 31, -1, 0, 33};
    std::vector<float> k(slots.size() * kHeads * kDim), v(slots.size() * kHeads * kValueDim);
    for (size_t i = 0; i < k.size(); ++i) k[i] = 1.0f + static_cast<float>(i);
    for (size_t i = 0; i < v.size(); ++i) v[i] = -1.0f - static_cast<float>(i);
    ThreadPool pool(2);
    Arena arena;
    write_kv({pool, cpu_level(), arena}, cache, {k.data(), 4, kHeads * kDim}, {v.data(), 4, kHeads * kValueDim}, slots);

    const auto element = [&](const std::byte* base, int64_t i) {
      if (dtype == DType::kF32) return reinterpret_cast<const float*>(base)[i];
      if (dtype == DType::kBF16) return to_float(reinterpret_cast<const BFloat16*>(base)[i]);
      return to_float(reinterpret_cast<const Float16*>(base)[i]);
    };
    int64_t written = 0;
    for (size_t i = 0; i < keys.size_bytes() / row_bytes(dtype, 1); ++i)
      written += element(keys.data(), static_cast<int64_t>(i)) != 0.0f;
    EXPECT_EQ(written, 3 * kHeads * kDim) << "a negative slot writes nothing";
    // Token 0 at block 2, offset 31, head 1, dimension 4; values of the same at column 6 of a row of 16.
    EXPECT_EQ(element(keys.data(), ((2 * kHeads + 1) * kDim + 4) * 32 + 31), k[1 * kDim + 4]);
    EXPECT_EQ(element(values.data(), ((2 * kHeads + 1) * 32 + 31) * 16 + 6), v[1 * kValueDim + 6]);

    std::vector<float> k_back(kHeads * kDim), v_back(kHeads * kValueDim);
    read_kv(cache, 33, k_back, v_back);
    EXPECT_TRUE(std::equal(k_back.begin(), k_back.end(), k.begin() + 3 * kHeads * kDim));
    EXPECT_TRUE(std::equal(v_back.begin(), v_back.end(), v.begin() + 3 * kHeads * kValueDim));
  }
}

TEST(KvCacheTest, ValuesThatLieInTheKeysAreStoredOnce) {
  constexpr int64_t kBlocks = 2, kDim = 24, kValueDim = 17;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    auto keys = *AlignedBuffer::allocate(kBlocks * kv_key_block_bytes(dtype, 1, kDim));
    const KvCacheView cache{keys.data(), nullptr, dtype, kBlocks, 1, kDim, kValueDim};
    std::vector<float> k(2 * kDim), k_back(kDim), v_back(kValueDim);
    for (size_t i = 0; i < k.size(); ++i) k[i] = 1.0f + static_cast<float>(i);
    const int64_t slots[] = {33, 5};
    ThreadPool pool(1);
    Arena arena;
    write_kv({pool, cpu_level(), arena}, cache, {k.data(), 2, kDim}, {}, slots);
    read_kv(cache, 5, k_back, v_back);
    EXPECT_TRUE(std::equal(k_back.begin(), k_back.end(), k.begin() + kDim));
    EXPECT_TRUE(std::equal(v_back.begin(), v_back.end(), k.begin() + kDim));
  }
}

// Rows that a quantiser may get wrong: zero, one outlier, too small for a scale, ties, next to the largest float, not finite.
std::vector<float> adversarial_rows(int64_t dim) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::mt19937 random(1);
  std::normal_distribution<float> value;
  std::vector<float> rows;
  const auto add = [&](auto element) {
    for (int64_t i = 0; i < dim; ++i) rows.push_back(element(i));
  };
  add([](int64_t) { return 0.0f; });
  add([](int64_t i) { return i % 2 == 0 ? -0.0f : 0.0f; });
  add([&](int64_t) { return value(random); });
  add([&](int64_t i) { return i == 3 ? -1e4f : value(random); });
  add([](int64_t i) { return i == 0 ? 127.0f : static_cast<float>(i % 20) - 9.5f; });
  add([](int64_t i) { return i == 0 ? 0x1p-149f : 0.0f; });
  add([&](int64_t) { return 1e-38f * value(random); });
  add([](int64_t i) { return i % 2 == 0 ? std::numeric_limits<float>::max() : -1e38f; });
  add([&](int64_t i) { return i == dim - 1 ? std::numeric_limits<float>::quiet_NaN() : 1.0f; });
  add([&](int64_t i) { return i == 2 ? -kInfinity : 1.0f; });
  return rows;
}

int8_t byte_at(const std::byte* base, int64_t i) { return static_cast<int8_t>(base[i]); }
uint32_t float_bits_at(const std::byte* base, int64_t i) {
  uint32_t bits;
  std::memcpy(&bits, base + i, sizeof bits);
  return bits & 0x80000000u ? bits & 0x7FFFFFFFu : bits;  // a NaN's sign is nobody's
}
uint32_t bits_of(float x) { return float_bits_at(reinterpret_cast<const std::byte*>(&x), 0); }

std::vector<CpuLevel> distinct_levels() {
  auto levels = usable_cpu_levels();
  std::erase_if(levels, [](CpuLevel level) { return level > CpuLevel::kAvx512; });
  return levels;
}

TEST(KvCacheTest, Int8IsEachKeysAndValuesOwnQuantisation) {
  for (const int64_t dim : {5, 64, 300}) {
    const int64_t v_dim = dim + 3, stride = kv_value_stride(v_dim);
    const auto k = adversarial_rows(dim), v = adversarial_rows(v_dim);
    const int64_t tokens = std::ssize(k) / dim;
    std::vector<int8_t> k_q(k.size()), v_q(v.size());
    std::vector<float> k_scale(tokens), v_scale(tokens);
    ref::dynamic_quant_rows({k.data(), tokens, dim}, {k_q.data(), tokens, dim}, k_scale);
    ref::dynamic_quant_rows({v.data(), tokens, v_dim}, {v_q.data(), tokens, v_dim}, v_scale);
    std::vector<int64_t> slots;
    for (int64_t t = 0; t < tokens; ++t) slots.push_back(63 - 5 * t);
    for (const CpuLevel level : distinct_levels()) {
      auto keys = *AlignedBuffer::allocate(2 * kv_key_block_bytes(DType::kI8, 1, dim));
      auto values = *AlignedBuffer::allocate(2 * kv_value_block_bytes(DType::kI8, 1, v_dim));
      const KvCacheView cache{keys.data(), values.data(), DType::kI8, 2, 1, dim, v_dim};
      ThreadPool pool(2);
      Arena arena;
      write_kv({pool, level, arena}, cache, {k.data(), tokens, dim}, {v.data(), tokens, v_dim}, slots);
      std::vector<float> k_back(dim), v_back(v_dim);
      for (int64_t t = 0; t < tokens; ++t) {
        const int64_t block = slots[t] / 32, offset = slots[t] % 32;
        const int64_t key_begin = block * (dim * 32 + 256), scales = key_begin + dim * 32;
        for (int64_t i = 0; i < dim; ++i) {
          ASSERT_EQ(byte_at(keys.data(), key_begin + i * 32 + offset), k_q[t * dim + i]) << cpu_level_name(level) << t;
        }
        for (int64_t i = 0; i < v_dim; ++i) {
          ASSERT_EQ(byte_at(values.data(), (block * 32 + offset) * stride + i), v_q[t * v_dim + i]) << cpu_level_name(level) << t;
        }
        EXPECT_EQ(float_bits_at(keys.data(), scales + offset * 4), bits_of(k_scale[t])) << cpu_level_name(level) << t;
        EXPECT_EQ(float_bits_at(keys.data(), scales + 128 + offset * 4), bits_of(v_scale[t])) << cpu_level_name(level) << t;
        read_kv(cache, slots[t], k_back, v_back);
        for (int64_t i = 0; i < dim; ++i)
          ASSERT_EQ(bits_of(k_back[i]), bits_of(k_scale[t] * static_cast<float>(k_q[t * dim + i])));
        for (int64_t i = 0; i < v_dim; ++i)
          ASSERT_EQ(bits_of(v_back[i]), bits_of(v_scale[t] * static_cast<float>(v_q[t * v_dim + i])));
      }
    }
  }
}

TEST(KvCacheTest, AnInt8LatentAndTheRestOfItsKeyHaveScalesOfTheirOwn) {
  constexpr int64_t kDim = 20, kValueDim = 15;
  auto keys = *AlignedBuffer::allocate(kv_key_block_bytes(DType::kI8, 1, kDim));
  const KvCacheView cache{keys.data(), nullptr, DType::kI8, 1, 1, kDim, kValueDim};
  std::vector<float> k(kDim), k_back(kDim), v_back(kValueDim);
  for (int64_t i = 0; i < kDim; ++i) k[i] = i < kValueDim ? 127.0f - static_cast<float>(i) : 1000.0f * static_cast<float>(i);
  const int64_t slots[] = {9};
  ThreadPool pool(1);
  Arena arena;
  write_kv({pool, cpu_level(), arena}, cache, {k.data(), 1, kDim}, {}, slots);
  read_kv(cache, 9, k_back, v_back);
  for (int64_t i = 0; i < kValueDim; ++i) EXPECT_EQ(k_back[i], k[i]) << "whole numbers up to 127 are exact";
  for (int64_t i = kValueDim; i < kDim; ++i) EXPECT_NEAR(k_back[i], k[i], 19000.0f / 254.0f);
  EXPECT_TRUE(std::equal(v_back.begin(), v_back.end(), k.begin()));
}

TEST(KvCacheTest, RoundsToNearestEven) {
  auto keys = *AlignedBuffer::allocate(kv_key_block_bytes(DType::kBF16, 1, 2));
  auto values = *AlignedBuffer::allocate(kv_value_block_bytes(DType::kBF16, 1, 1));
  const KvCacheView cache{keys.data(), values.data(), DType::kBF16, 1, 1, 2, 1};
  const float k[] = {1.0f + 0x1p-8f, 1.0f + 0x3p-8f}, v[] = {1e-41f};  // ties: down to even, up to even; a subnormal
  const int64_t slots[] = {7};
  ThreadPool pool(1);
  Arena arena;
  write_kv({pool, cpu_level(), arena}, cache, {k, 1, 2}, {v, 1, 1}, slots);
  float k_back[2], v_back[1];
  read_kv(cache, 7, k_back, v_back);
  EXPECT_EQ(k_back[0], 1.0f);
  EXPECT_EQ(k_back[1], 1.0f + 0x4p-8f);
  EXPECT_EQ(v_back[0], to_float(to_bfloat16(1e-41f)));
}

}  // namespace
}  // namespace choral::kernels
