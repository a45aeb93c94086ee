#include "kernels/attention/kv_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/float16.h"

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
