#include "kernels/gemm/gemm_float_panels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/cpu_level.h"
#include "base/float16.h"
#include "kernels/gemm/gemm_float_pack.h"
#include "kernels/quant/dequantise.h"

namespace choral::kernels {
namespace {

using testing::HasSubstr;

// Rows of a stored tensor at an odd address, as mapped files have them.
struct Stored {
  DType dtype;
  int64_t rows, k;
  std::vector<std::byte> bytes;

  TensorView view() const { return {bytes.data() + 1, dtype, {rows, k}, kCpuDevice}; }
  std::vector<float> row(int64_t i) const {
    std::vector<float> out(k);
    dequantise_row(dtype, view().row(i), k, out.data());
    return out;
  }
};

Stored random_stored(DType dtype, int64_t rows, int64_t k, uint32_t seed) {
  Stored s{dtype, rows, k, std::vector<std::byte>(static_cast<size_t>(rows * row_bytes(dtype, k)) + 1)};
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::byte* p = s.bytes.data() + 1;
  for (int64_t i = 0; i < rows * k; ++i) {
    const float value = normal(random);
    const auto put = [&](auto v) { std::memcpy(p + i * static_cast<int64_t>(sizeof v), &v, sizeof v); };
    switch (dtype) {
      case DType::kF32: put(value); break;
      case DType::kF64: put(static_cast<double>(value) * 1.000000001); break;
      case DType::kF16: put(to_float16(value).bits); break;
      case DType::kBF16: put(to_bfloat16(value).bits); break;
      default: break;
    }
  }
  if (facts(dtype).is_block) {
    for (auto& byte : s.bytes) byte = static_cast<std::byte>(random() & 0x3F);  // scales stay finite
  }
  return s;
}

float rounded(float x, DType as) {
  if (as == DType::kBF16) return to_float(to_bfloat16(x));
  if (as == DType::kF16) return to_float(to_float16(x));
  return x;
}

void expect_row(const FloatPanels& packed, int64_t row, const std::vector<float>& source, const char* what) {
  std::vector<float> out(packed.k);
  read_panel_row(packed, row, out);
  for (size_t i = 0; i < out.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(rounded(source[i], packed.dtype)))
        << what << " row " << row << " k " << i;
  }
}

TEST(PackFloatPanels, EverySourceTypeIntoEveryPackedType) {
  ThreadPool pool(2);
  for (const DType from : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1,
                           DType::kQ5_0, DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
    for (const DType as : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const int64_t k : {int64_t{256}, int64_t{1024 + 256}}) {
        const Stored stored = random_stored(from, 37, k, 5);
        const WeightRows part{stored.view(), {}};
        auto packed = pack_float_panels({&part, 1}, as, pool);
        ASSERT_TRUE(packed.ok()) << packed.status().to_string();
        for (int64_t i = 0; i < stored.rows; ++i) expect_row(*packed, i, stored.row(i), dtype_name(from).data());
      }
    }
  }
}

TEST(PackFloatPanels, OddShapesArePaddedWithZeros) {
  ThreadPool pool(1);
  for (const DType as : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t k : {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 1023, 1025}) {
      for (const int64_t n : {1, 15, 16, 17}) {
        const Stored stored = random_stored(as, n, k, 6);
        const WeightRows part{stored.view(), {}};
        auto packed = pack_float_panels({&part, 1}, as, pool);
        ASSERT_TRUE(packed.ok());
        ASSERT_EQ(packed->panel_bytes % 64, 0);
        for (int64_t i = 0; i < n; ++i) expect_row(*packed, i, stored.row(i), "odd shape");
        int64_t filled = 0;
        for (const auto element : packed->bytes.bytes()) filled += element != std::byte{0};
        int64_t expected = 0;
        for (size_t i = 1; i < stored.bytes.size(); ++i) expected += stored.bytes[i] != std::byte{0};
        ASSERT_EQ(filled, expected) << "padding is zero: n " << n << " k " << k;
      }
    }
  }
}

TEST(PackFloatPanels, StacksPartsInTheirOrder) {
  ThreadPool pool(2);
  const Stored q = random_stored(DType::kF32, 20, 64, 1);
  const Stored k = random_stored(DType::kBF16, 7, 64, 2);
  const Stored v = random_stored(DType::kQ8_0, 9, 64, 3);
  std::vector<int32_t> order{3, 1, 2, 0, 19, 4, 4};  // a subset, and a row twice
  const std::vector<WeightRows> parts{{q.view(), order}, {k.view(), {}}, {v.view(), {}}};
  auto packed = pack_float_panels(parts, DType::kF32, pool);
  ASSERT_TRUE(packed.ok());
  ASSERT_EQ(packed->n, 7 + 7 + 9);
  for (int64_t i = 0; i < 7; ++i) expect_row(*packed, i, q.row(order[i]), "q");
  for (int64_t i = 0; i < 7; ++i) expect_row(*packed, 7 + i, k.row(i), "k");
  for (int64_t i = 0; i < 9; ++i) expect_row(*packed, 14 + i, v.row(i), "v");
}

TEST(PackFloatPanels, RefusesWhatItCannotPack) {
  ThreadPool pool(1);
  const Stored a = random_stored(DType::kF32, 4, 32, 1);
  const Stored b = random_stored(DType::kF32, 4, 33, 1);
  const auto message = [&](std::vector<WeightRows> parts, DType as) {
    auto packed = pack_float_panels(parts, as, pool);
    return packed.ok() ? std::string("ok") : packed.status().to_string();
  };
  EXPECT_THAT(message({}, DType::kF32), HasSubstr("at least one part"));
  EXPECT_THAT(message({{a.view(), {}}}, DType::kI8), HasSubstr("not int8"));
  EXPECT_THAT(message({{a.view(), {}}, {b.view(), {}}}, DType::kF32), HasSubstr("part 1 has k = 33 but part 0 has 32"));
  const std::vector<int32_t> out_of_range{0, 4};
  EXPECT_THAT(message({{a.view(), out_of_range}}, DType::kF32), HasSubstr("orders row 4, but the tensor has 4 rows"));
  const std::vector<int32_t> negative{-1};
  EXPECT_THAT(message({{a.view(), negative}}, DType::kF32), HasSubstr("orders row -1"));
  TensorView ints = a.view();
  ints.dtype = DType::kI32;
  EXPECT_THAT(message({{ints, {}}}, DType::kF32), HasSubstr("no float type"));
  TensorView blocks = a.view();
  blocks.dtype = DType::kQ4_K;
  EXPECT_THAT(message({{blocks, {}}}, DType::kF32), HasSubstr("not whole"));
  TensorView empty = a.view();
  empty.shape = {0, 32};
  EXPECT_THAT(message({{empty, {}}}, DType::kF32), HasSubstr("empty"));
  empty.shape = {4, 0};
  EXPECT_THAT(message({{empty, {}}}, DType::kF32), HasSubstr("empty"));
  TensorView line = a.view();
  line.shape = {32};
  EXPECT_THAT(message({{line, {}}}, DType::kF32), HasSubstr("[rows, k]"));
  TensorView far = a.view();
  far.device.host_accessible = false;
  EXPECT_THAT(message({{far, {}}}, DType::kF32), HasSubstr("device memory"));
  TensorView huge = a.view();
  huge.shape = {int64_t{1} << 40, int64_t{1} << 40};
  EXPECT_THAT(message({{huge, {}}}, DType::kF32), HasSubstr("beyond any memory"));
}

// Every rounding case of 16 bits: ties, carries into the exponent, overflow, subnormals, NaN.
TEST(PackKernels, RoundLikeTheScalarReferenceOnEveryLevel) {
  std::vector<float> values;
  std::mt19937 random(9);
  for (int i = 0; i < 100'000; ++i) values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  for (const uint32_t high : {0u, 0x0001u, 0x3F80u, 0x3F81u, 0x7F7Fu, 0x7F80u, 0x7FC0u, 0x477Fu, 0x3380u, 0x3300u, 0x8000u}) {
    for (const uint32_t low : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu, 0xE000u, 0xF000u}) {
      values.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  const auto count = std::ssize(values);
  for (const CpuLevel level : usable_cpu_levels()) {
    std::vector<BFloat16> brain(values.size());
    std::vector<Float16> half(values.size());
    pack_kernels(level).to_bfloat16(values.data(), count, brain.data());
    pack_kernels(level).to_float16(values.data(), count, half.data());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(brain[i].bits, to_bfloat16(values[i]).bits) << values[i] << " " << cpu_level_name(level);
      ASSERT_EQ(half[i].bits, to_float16(values[i]).bits) << values[i] << " " << cpu_level_name(level);
    }
  }
}

TEST(PackKernels, TransposeAlikeOnEveryLevel) {
  std::mt19937 random(3);
  std::vector<std::byte> source(16 * 300 * 4 + 16);
  for (auto& byte : source) byte = static_cast<std::byte>(random());
  for (const int present : {1, 15, 16}) {
    for (const int64_t count : {1, 7, 8, 15, 16, 17, 33, 299}) {
      std::vector<const std::byte*> rows;
      for (int r = 0; r < 16; ++r) rows.push_back(source.data() + 1 + r * 300 * 4);
      for (const CpuLevel level : usable_cpu_levels()) {
        auto buffer = AlignedBuffer::allocate(300 * 16 * 4);
        ASSERT_TRUE(buffer.ok());
        pack_kernels(level).transpose32(rows.data(), present, count, buffer->data());
        for (int64_t i = 0; i < count; ++i) {
          for (int r = 0; r < present; ++r) {
            ASSERT_EQ(std::memcmp(buffer->data() + (i * 16 + r) * 4, rows[r] + i * 4, 4), 0);
          }
        }
        pack_kernels(level).transpose16(rows.data(), present, count, buffer->data());
        for (int64_t i = 0; i < count; ++i) {
          for (int r = 0; r < present; ++r) {
            ASSERT_EQ(std::memcmp(buffer->data() + (i * 16 + r) * 2, rows[r] + i * 2, 2), 0);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace choral::kernels
