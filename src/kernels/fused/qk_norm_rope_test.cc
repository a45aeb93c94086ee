#include "kernels/fused/qk_norm_rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/aligned_buffer.h"
#include "kernels/gemm/gemm_quant_test_data.h"
#include "kernels/ref/rms_norm.h"
#include "kernels/ref/rotary.h"

namespace choral::kernels {
namespace {

constexpr int64_t kTokens = 41, kHeads = 6, kKvHeads = 2, kMaxPositions = 64;
constexpr float kRopeEps = 1e-6f;

class QkNormRopeTest : public testing::TestWithParam<CpuLevel> {
 protected:
  Context ctx() { return {pool_, GetParam(), arena_}; }

  ThreadPool pool_{2};
  Arena arena_;
};
INSTANTIATE_TEST_SUITE_P(Levels, QkNormRopeTest, testing::ValuesIn(usable_cpu_levels()),
                         [](const auto& tested) { return std::string(cpu_level_name(tested.param)); });

struct Shape {
  int64_t head_dim, rotary_dim;
  bool interleaved;
};
constexpr Shape kShapes[] = {{64, 64, false}, {20, 20, false}, {40, 24, true}, {36, 32, false}, {128, 128, true}};

RotaryTable table_of(const Shape& shape) {
  RotaryParams p;
  p.head_dim = shape.head_dim;
  p.rotary_dim = shape.rotary_dim;
  p.interleaved = shape.interleaved;
  p.max_positions = kMaxPositions;
  return *RotaryTable::make(p);
}

// One qkv matrix whose rows are q, k, v and something that is nobody's.
struct Qkv {
  int64_t dim, v_dim, stride;
  std::vector<float> data;

  Qkv(int64_t head_dim, int64_t v_head_dim)
      : dim(head_dim),
        v_dim(v_head_dim),
        stride((kHeads + kKvHeads) * head_dim + kKvHeads * v_head_dim + 5),
        data(gaussian(kTokens * stride, 11)) {}
  MatrixView<float> all() { return {data.data(), kTokens, stride}; }
  MatrixView<float> q() { return all().sub_cols(0, kHeads * dim); }
  MatrixView<float> k() { return all().sub_cols(kHeads * dim, kKvHeads * dim); }
  MatrixView<float> v() { return all().sub_cols((kHeads + kKvHeads) * dim, kKvHeads * v_dim); }
};

std::vector<int32_t> some_positions() {
  std::vector<int32_t> positions(kTokens);
  for (int64_t t = 0; t < kTokens; ++t) positions[t] = static_cast<int32_t>(t * 29 % kMaxPositions);
  return positions;
}

TEST_P(QkNormRopeTest, IsTheCompositionToTheBit) {
  const auto positions = some_positions();
  for (const Shape& shape : kShapes) {
    const RotaryTable table = table_of(shape);
    const auto q_weight = gaussian(shape.head_dim, 1), k_weight = gaussian(shape.head_dim, 2);
    Qkv got(shape.head_dim, shape.head_dim), expected = got;
    rms_norm_heads(ctx(), expected.q(), kHeads, q_weight, kRopeEps);
    rms_norm_heads(ctx(), expected.k(), kKvHeads, k_weight, kRopeEps);
    apply_rotary(ctx(), table, positions, expected.q(), kHeads, expected.k(), kKvHeads);
    qk_norm_rope(ctx(), {q_weight, k_weight, kRopeEps}, table, positions, got.q(), kHeads, got.k(), kKvHeads);
    EXPECT_EQ(got.data, expected.data) << shape.head_dim;
  }
}

TEST_P(QkNormRopeTest, AgreesWithTheOracles) {
  const auto positions = some_positions();
  for (const Shape& shape : kShapes) {
    const RotaryTable table = table_of(shape);
    const auto q_weight = gaussian(shape.head_dim, 1), k_weight = gaussian(shape.head_dim, 2);
    Qkv got(shape.head_dim, shape.head_dim), expected = got;
    qk_norm_rope(ctx(), {q_weight, k_weight, kRopeEps}, table, positions, got.q(), kHeads, got.k(), kKvHeads);
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t h = 0; h < kHeads + kKvHeads; ++h) {
        const int64_t dim = shape.head_dim, half = shape.rotary_dim / 2;
        const MatrixView<float> head(expected.all().row(t) + h * dim, 1, dim);
        ref::rms_norm(head, h < kHeads ? q_weight : k_weight, kRopeEps, head);
        double largest = 0.0;
        for (const float a : head.row_span(0)) largest = std::max(largest, std::fabs(static_cast<double>(a)));
        ref::rotate_head(head.row_span(0), {table.cos_row(positions[t]), static_cast<size_t>(half)},
                         {table.sin_row(positions[t]), static_cast<size_t>(half)}, shape.interleaved);
        // A norm's roundings (rms_norm_test), of which a rotation may leave the absolute error only, and its own three.
        const double bound = 0x1p-24 * (12.0 + std::sqrt(static_cast<double>(dim))) * 1.5 * largest;
        for (int64_t i = 0; i < dim; ++i) ASSERT_NEAR(got.all().row(t)[h * dim + i], head.data[i], bound);
      }
    }
  }
}

struct Cache {
  KvCacheView view;
  AlignedBuffer keys, values;

  Cache(DType dtype, int64_t head_dim, int64_t v_head_dim) {
    constexpr int64_t kBlocks = 4;
    keys = *AlignedBuffer::allocate(kBlocks * kv_key_block_bytes(dtype, kKvHeads, head_dim));
    values = *AlignedBuffer::allocate(kBlocks * kv_value_block_bytes(dtype, kKvHeads, v_head_dim));
    std::memset(keys.data(), 0x3C, keys.size_bytes());
    std::memset(values.data(), 0x3C, values.size_bytes());
    view = {keys.data(), values.data(), dtype, kBlocks, kKvHeads, head_dim, v_head_dim};
  }
  bool same_bytes(const Cache& other) const {
    return std::memcmp(keys.data(), other.keys.data(), keys.size_bytes()) == 0 &&
           std::memcmp(values.data(), other.values.data(), values.size_bytes()) == 0;
  }
};

TEST_P(QkNormRopeTest, WritingTheCacheOnTheWayIsTheCompositionToTheBit) {
  const auto positions = some_positions();
  std::vector<int64_t> slots(kTokens);
  for (int64_t t = 0; t < kTokens; ++t) slots[t] = t % 7 == 3 ? -1 : (t * 37 + 5) % 128;  // distinct; some are padding
  for (const Shape& shape : kShapes) {
    const RotaryTable table = table_of(shape);
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kI8}) {
      const int64_t v_dim = shape.head_dim / 2 + 1;
      Qkv got(shape.head_dim, v_dim), expected = got;
      Cache cache(dtype, shape.head_dim, v_dim), expected_cache(dtype, shape.head_dim, v_dim);
      apply_rotary(ctx(), table, positions, expected.q(), kHeads, expected.k(), kKvHeads);
      rope_write_kv(ctx(), table, positions, got.q(), kHeads, got.k(), got.v(), cache.view, slots);
      write_kv(ctx(), expected_cache.view, expected.k(), expected.v(), slots);
      EXPECT_EQ(got.data, expected.data) << "rows without a slot are rotated too";
      EXPECT_TRUE(cache.same_bytes(expected_cache)) << "nothing else is written";
    }
  }
}

}  // namespace
}  // namespace choral::kernels
