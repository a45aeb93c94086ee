#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "kernels/ref/attention.h"

namespace choral::kernels {
namespace {

struct Shape {
  int64_t heads = 4, kv_heads = 2, head_dim = 16, v_head_dim = 16;
  DType dtype = DType::kF32;
  int64_t window = 0;
  float softcap = 0.0f;
  bool sinks = false;
  bool values_in_keys = false;
  bool sees_later = false;
};

struct Chunk {
  int64_t context, count;
};

// Sequences with a cache of their own: every slot that no token was written to holds NaN, as another request may have left it.
class Batch {
 public:
  Batch(const Shape& shape, std::span<const int64_t> lengths, uint32_t seed)
      : shape_(shape), lengths_(lengths.begin(), lengths.end()) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> value(-1.0f, 1.0f);
    int64_t blocks = 3, tokens = 0;
    for (const int64_t n : lengths_) blocks += ceil_div(n, kKvBlockTokens), tokens += n;
    keys_ = *AlignedBuffer::allocate(blocks * kv_key_block_bytes(shape.dtype, shape.kv_heads, shape.head_dim));
    std::memset(keys_.data(), 0xFF, keys_.size_bytes());
    if (!shape.values_in_keys) {
      values_ = *AlignedBuffer::allocate(blocks * kv_value_block_bytes(shape.dtype, shape.kv_heads, shape.v_head_dim));
      std::memset(values_.data(), 0xFF, values_.size_bytes());
    }
    cache_ = {keys_.data(), values_.data(), shape.dtype, blocks, shape.kv_heads, shape.head_dim, shape.v_head_dim};
    std::vector<int32_t> free(blocks);
    for (int64_t i = 0; i < blocks; ++i) free[i] = static_cast<int32_t>(i);
    std::shuffle(free.begin(), free.end(), random);
    std::vector<int64_t> slots;
    for (const int64_t n : lengths_) {
      first_row_.push_back(std::ssize(slots));
      tables_.emplace_back();
      for (int64_t p = 0; p < n; ++p) {
        if (p % kKvBlockTokens == 0) tables_.back().push_back(free.back()), free.pop_back();
        slots.push_back(tables_.back().back() * kKvBlockTokens + p % kKvBlockTokens);
      }
    }
    const auto fill = [&](std::vector<float>& m, int64_t cols) {
      m.resize(tokens * cols);
      for (float& x : m) x = value(random);
    };
    fill(q_, shape.heads * shape.head_dim);
    fill(k_, shape.kv_heads * shape.head_dim);
    fill(v_, shape.values_in_keys ? 0 : shape.kv_heads * shape.v_head_dim);
    fill(sinks_, shape.sinks ? 1 : 0);
    sinks_.resize(shape.sinks ? shape.heads : 0, 0.5f);
    slots_ = slots;
    write();
  }

  void write() {
    ThreadPool pool(1);
    Arena arena;
    const auto tokens = std::ssize(slots_);
    write_kv({pool, cpu_level(), arena}, cache_, {k_.data(), tokens, shape_.kv_heads * shape_.head_dim},
             {v_.data(), tokens, shape_.values_in_keys ? 0 : shape_.kv_heads * shape_.v_head_dim}, slots_);
  }

  AttentionParams params() const {
    return {.heads = shape_.heads,
            .kv_heads = shape_.kv_heads,
            .head_dim = shape_.head_dim,
            .scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim)),
            .softcap = shape_.softcap,
            .sliding_window = shape_.window,
            .sinks = sinks_,
            .sees_later = shape_.sees_later};
  }
  int64_t out_cols() const { return shape_.heads * shape_.v_head_dim; }
  int64_t rows() const { return std::ssize(slots_); }
  std::vector<float>& k() { return k_; }
  std::vector<float>& v() { return v_; }

  // One call: for each (sequence, chunk) its rows, compactly; the result is put back at the rows' places in `out` [rows,
  // out_cols].
  void run(CpuLevel level, int threads, std::span<const std::pair<int, Chunk>> work, std::vector<float>& out) {
    ThreadPool pool(threads);
    Arena arena;
    run({pool, level, arena}, work, out);
  }

  void run(const Context& ctx, std::span<const std::pair<int, Chunk>> work, std::vector<float>& out) {
    const int64_t q_cols = shape_.heads * shape_.head_dim;
    std::vector<float> q;
    std::vector<AttentionSequence> sequences;
    for (const auto& [s, chunk] : work) {
      sequences.push_back({std::ssize(q) / q_cols, chunk.count, chunk.context, tables_[s]});
      const float* from = q_.data() + (first_row_[s] + chunk.context) * q_cols;
      q.insert(q.end(), from, from + chunk.count * q_cols);
    }
    const int64_t rows = std::ssize(q) / q_cols;
    std::vector<float> result(rows * out_cols(), -7.0f);
    paged_attention(ctx, params(), {q.data(), rows, q_cols}, cache_, sequences, {result.data(), rows, out_cols()});
    out.resize(this->rows() * out_cols(), -7.0f);
    for (size_t i = 0; i < work.size(); ++i) {
      const auto& [s, chunk] = work[i];
      std::copy_n(result.data() + sequences[i].query_begin * out_cols(), chunk.count * out_cols(),
                  out.data() + (first_row_[s] + chunk.context) * out_cols());
    }
  }

  std::vector<float> whole(CpuLevel level, int threads = 1) {
    std::vector<std::pair<int, Chunk>> work;
    for (size_t s = 0; s < lengths_.size(); ++s) work.push_back({static_cast<int>(s), {0, lengths_[s]}});
    std::vector<float> out;
    run(level, threads, work, out);
    return out;
  }

  std::vector<float> oracle() const {
    std::vector<AttentionSequence> sequences;
    for (size_t s = 0; s < lengths_.size(); ++s) sequences.push_back({first_row_[s], lengths_[s], 0, tables_[s]});
    std::vector<float> out(rows() * out_cols());
    ref::paged_attention(params(), {q_.data(), rows(), shape_.heads * shape_.head_dim}, cache_, sequences,
                         {out.data(), rows(), out_cols()});
    return out;
  }

  // Rounding of a score (a dot product of terms below `scale`, and tanh) moves a weight by as much relatively; then the sums.
  double tolerance() const {
    const double dim = static_cast<double>(shape_.head_dim),
                 longest = static_cast<double>(*std::max_element(lengths_.begin(), lengths_.end()));
    const double score = params().scale * dim;
    return 0x1p-24 * (8.0 + 2.0 * std::sqrt(dim) * score / std::sqrt(dim) + 4.0 * shape_.softcap + 2.0 * std::sqrt(longest));
  }

 private:
  Shape shape_;
  std::vector<int64_t> lengths_, first_row_, slots_;
  AlignedBuffer keys_, values_;
  KvCacheView cache_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<float> q_, k_, v_, sinks_;
};

// Above AVX-512 the kernels are the same.
std::vector<CpuLevel> distinct_levels() {
  auto levels = usable_cpu_levels();
  std::erase_if(levels, [](CpuLevel level) { return level > CpuLevel::kAvx512; });
  return levels;
}

void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::memcmp(&a[i], &b[i], sizeof(float)), 0) << what << ": element " << i << ": " << a[i] << " and " << b[i];
  }
}

std::vector<Shape> shapes() {
  return {
      {.heads = 4, .kv_heads = 2, .head_dim = 64, .v_head_dim = 64},
      {.heads = 9, .kv_heads = 3, .head_dim = 64, .v_head_dim = 64, .dtype = DType::kBF16},
      {.heads = 14, .kv_heads = 2, .head_dim = 32, .v_head_dim = 32, .dtype = DType::kF16},
      {.heads = 3, .kv_heads = 3, .head_dim = 80, .v_head_dim = 80, .window = 40},
      {.heads = 4, .kv_heads = 1, .head_dim = 15, .v_head_dim = 17, .dtype = DType::kBF16, .window = 1},
      {.heads = 2, .kv_heads = 1, .head_dim = 1, .v_head_dim = 33, .dtype = DType::kF16, .window = 33},
      {.heads = 100, .kv_heads = 1, .head_dim = 24, .v_head_dim = 8},  // more heads than a tile has rows
      {.heads = 4, .kv_heads = 2, .head_dim = 16, .v_head_dim = 48, .softcap = 3.0f},
      {.heads = 6, .kv_heads = 2, .head_dim = 8, .v_head_dim = 8, .window = 32, .sinks = true},
      {.heads = 16, .kv_heads = 1, .head_dim = 576, .v_head_dim = 512, .values_in_keys = true},
      {.heads = 20, .kv_heads = 1, .head_dim = 40, .v_head_dim = 33, .dtype = DType::kBF16, .values_in_keys = true},
      {.heads = 4, .kv_heads = 2, .head_dim = 24, .v_head_dim = 24, .dtype = DType::kF16, .window = 40, .values_in_keys = true},
      {.heads = 100, .kv_heads = 1, .head_dim = 7, .v_head_dim = 5, .values_in_keys = true},
      {.heads = 9, .kv_heads = 3, .head_dim = 64, .v_head_dim = 64, .dtype = DType::kI8},
      {.heads = 4, .kv_heads = 1, .head_dim = 15, .v_head_dim = 17, .dtype = DType::kI8, .window = 40, .softcap = 3.0f},
      {.heads = 100, .kv_heads = 1, .head_dim = 24, .v_head_dim = 8, .dtype = DType::kI8, .window = 1, .sinks = true},
      {.heads = 16, .kv_heads = 1, .head_dim = 72, .v_head_dim = 64, .dtype = DType::kI8, .values_in_keys = true},
      {.heads = 4, .kv_heads = 2, .head_dim = 24, .v_head_dim = 24, .dtype = DType::kI8, .window = 33, .values_in_keys = true},
  };
}

TEST(AttentionTest, MatchesTheOracle) {
  for (const Shape& shape : shapes()) {
    const int64_t lengths[] = {1, 31, 32, 33, 150};
    Batch batch(shape, lengths, 1);
    const auto expected = batch.oracle();
    for (const CpuLevel level : distinct_levels()) {
      const auto got = batch.whole(level);
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], expected[i], batch.tolerance())
            << cpu_level_name(level) << ", head_dim " << shape.head_dim << ", window " << shape.window << ", element " << i;
      }
    }
  }
}

TEST(AttentionTest, ARowDoesNotKnowItsChunkNeighboursOrThreads) {
  for (const Shape& shape : shapes()) {
    const int64_t lengths[] = {70, 1, 45};
    Batch batch(shape, lengths, 2);
    const std::vector<std::vector<std::pair<int, Chunk>>> cuts = {
        {{0, {0, 70}}},               // alone
        {{2, {0, 45}}, {1, {0, 1}}},  // another order
        {{0, {0, 1}}, {2, {0, 31}}},  // then in pieces beside each other
        {{2, {31, 13}}, {0, {1, 30}}},
        {{0, {31, 2}}, {2, {44, 1}}},
        {{0, {33, 32}}, {1, {0, 1}}},
        {{0, {65, 4}}},
        {{0, {69, 1}}},
    };
    for (const CpuLevel level : distinct_levels()) {
      const auto whole = batch.whole(level);
      expect_same_bits(whole, batch.whole(level, 2), "two threads");
      expect_same_bits(whole, batch.whole(level, 3), "three threads");
      std::vector<float> pieces;
      for (const auto& work : cuts) batch.run(level, 2, work, pieces);
      expect_same_bits(whole, pieces, "pieces");
    }
  }
}

TEST(AttentionTest, KeysBehindAQueryCountWhereTheyAreSeen) {
  const Shape shapes[] = {
      {.heads = 4, .kv_heads = 2, .head_dim = 64, .v_head_dim = 64, .sees_later = true},
      {.heads = 9, .kv_heads = 3, .head_dim = 32, .v_head_dim = 32, .dtype = DType::kBF16, .window = 1, .sees_later = true},
      {.heads = 3, .kv_heads = 1, .head_dim = 80, .v_head_dim = 80, .window = 33, .sees_later = true},
      {.heads = 4, .kv_heads = 1, .head_dim = 15, .v_head_dim = 17, .dtype = DType::kI8, .window = 40, .sees_later = true},
  };
  for (const Shape& shape : shapes) {
    const int64_t lengths[] = {1, 31, 32, 33, 150, kAttentionRangeTokens + 70};
    Batch batch(shape, lengths, 8);
    const auto expected = batch.oracle();
    for (const CpuLevel level : distinct_levels()) {
      const auto got = batch.whole(level);
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], expected[i], batch.tolerance()) << cpu_level_name(level) << ' ' << i;
      expect_same_bits(got, batch.whole(level, 3), "three threads");
      std::vector<float> alone;
      for (int s = 0; s < 6; ++s) {
        const std::pair<int, Chunk> work[] = {{s, {0, lengths[s]}}};
        batch.run(level, 2, work, alone);
      }
      expect_same_bits(got, alone, "alone");
    }
  }
}

TEST(AttentionTest, ALongDecodeSplitOverThreadsEqualsItsPrefill) {
  for (const int64_t window : {0, 1500}) {
    for (const bool sinks : {false, true}) {
      const Shape shape{.heads = 2, .kv_heads = 1, .head_dim = 8, .v_head_dim = 24, .window = window, .sinks = sinks};
      const int64_t lengths[] = {9 * kAttentionRangeTokens + 5, 40};
      Batch batch(shape, lengths, 3);
      for (const CpuLevel level : distinct_levels()) {
        // A whole number of ranges, one key more, several waves of ranges; beside a short neighbour.
        for (const int64_t position : {kAttentionRangeTokens, 2 * kAttentionRangeTokens - 1, lengths[0] - 1}) {
          const std::pair<int, Chunk> prefill[] = {{0, {position - 20, 21}}}, decode[] = {{1, {39, 1}}, {0, {position, 1}}};
          std::vector<float> expected, got;
          batch.run(level, 1, prefill, expected);
          for (const int threads : {1, 2, 5}) {
            batch.run(level, threads, decode, got);
            const auto row = [&](const std::vector<float>& m) {
              const auto begin = m.begin() + position * batch.out_cols();
              return std::vector<float>(begin, begin + batch.out_cols());
            };
            expect_same_bits(row(expected), row(got), "decoded");
          }
        }
      }
    }
  }
}

// More long tiles than there are states for, each of more ranges than a wave has; decode rows beside them.
TEST(AttentionTest, TilesDividedInWavesEqualWholeOnes) {
  const Shape shape{.heads = 9, .kv_heads = 3, .head_dim = 8, .v_head_dim = 8, .dtype = DType::kF16};
  const int64_t lengths[] = {9 * kAttentionRangeTokens + 5, 3 * kAttentionRangeTokens, 40};
  Batch batch(shape, lengths, 9);
  const std::pair<int, Chunk> work[] = {{1, {lengths[1] - 1, 1}}, {0, {lengths[0] - 21, 21}}, {2, {39, 1}}};
  for (const CpuLevel level : distinct_levels()) {
    std::vector<float> expected, got;
    batch.run(level, 1, work, expected);
    for (const int threads : {2, 3, 8}) {
      got.clear();
      batch.run(level, threads, work, got);
      expect_same_bits(expected, got, "divided");
    }
  }
}

TEST(AttentionTest, LongContextMatchesTheOracle) {
  const Shape shape{.heads = 1, .kv_heads = 1, .head_dim = 16, .v_head_dim = 16, .dtype = DType::kBF16};
  const int64_t lengths[] = {2 * kAttentionRangeTokens + 40};
  Batch batch(shape, lengths, 4);
  const auto expected = batch.oracle();
  for (const CpuLevel level : distinct_levels()) {
    const auto got = batch.whole(level, 2);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], batch.tolerance()) << cpu_level_name(level);
  }
}

// Zero rows, one outlier in a row, rows of very different size: each token has its own scales.
TEST(AttentionTest, Int8RowsOfAnySizeMatchTheOracle) {
  for (const bool values_in_keys : {false, true}) {
    const Shape shape{
        .heads = 6, .kv_heads = 2, .head_dim = 32, .v_head_dim = 24, .dtype = DType::kI8, .values_in_keys = values_in_keys};
    const int64_t lengths[] = {100, 3};
    Batch batch(shape, lengths, 8);
    const auto resize_rows = [](std::vector<float>& m, int64_t cols) {
      for (int64_t t = 0; t * cols < std::ssize(m); ++t) {
        float* row = m.data() + t * cols;
        if (t % 5 == 1) std::fill_n(row, cols, 0.0f);
        if (t % 5 == 2) row[t % cols] = 10.0f;
        if (t % 5 == 3) std::transform(row, row + cols, row, [](float x) { return 1e-3f * x; });
        if (t % 5 == 4) std::fill_n(row, cols, 1e-42f);
      }
    };
    resize_rows(batch.k(), 2 * shape.head_dim);
    resize_rows(batch.v(), 2 * shape.v_head_dim);
    batch.write();
    const auto expected = batch.oracle();
    for (const CpuLevel level : distinct_levels()) {
      const auto got = batch.whole(level);
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], expected[i], 20.0 * batch.tolerance()) << cpu_level_name(level) << ", element " << i;
      }
    }
  }
}

TEST(AttentionTest, ALaterTokenThatIsNaNLeavesEarlierRowsAlone) {
  for (const DType dtype : {DType::kF32, DType::kI8}) {
    const Shape shape{.heads = 4, .kv_heads = 2, .head_dim = 16, .v_head_dim = 16, .dtype = dtype};
    const int64_t lengths[] = {60};
    const int64_t row = 50;
    for (const bool in_key : {false, true}) {
      Batch clean(shape, lengths, 5), broken(shape, lengths, 5);
      auto& rows = in_key ? broken.k() : broken.v();
      std::fill_n(rows.begin() + row * 32, 32, std::numeric_limits<float>::quiet_NaN());
      broken.write();
      for (const CpuLevel level : distinct_levels()) {
        auto a = clean.whole(level), b = broken.whole(level);
        EXPECT_TRUE(std::isnan(b[row * clean.out_cols()])) << "a NaN that is seen is not hidden";
        a.resize(row * clean.out_cols());
        b.resize(row * clean.out_cols());
        expect_same_bits(a, b, "before the NaN");
      }
    }
  }
}

TEST(AttentionTest, OneVisibleKeyGivesItsValue) {
  const Shape shape{.heads = 2, .kv_heads = 1, .head_dim = 16, .v_head_dim = 16, .window = 1};
  const int64_t lengths[] = {40};
  Batch batch(shape, lengths, 6);
  for (const CpuLevel level : distinct_levels()) {
    const auto out = batch.whole(level);
    for (int64_t t = 0; t < 40; ++t) {
      for (int64_t i = 0; i < 32; ++i) ASSERT_EQ(out[t * 32 + i], batch.v()[t * 16 + i % 16]);
    }
  }
}

TEST(AttentionTest, ScratchDoesNotGrowWithTheContext) {
  const Shape shape{.heads = 2, .kv_heads = 1, .head_dim = 8, .v_head_dim = 8};
  const int64_t lengths[] = {8 * kAttentionRangeTokens};
  Batch batch(shape, lengths, 7);
  ThreadPool pool(3);
  Arena arena;
  std::vector<float> out;
  const std::pair<int, Chunk> first[] = {{0, {0, 1}}}, last[] = {{0, {lengths[0] - 1, 1}}};
  batch.run({pool, cpu_level(), arena}, first, out);
  const int64_t grown = arena.grown();
  batch.run({pool, cpu_level(), arena}, last, out);
  EXPECT_EQ(arena.grown(), grown);
}

}  // namespace
}  // namespace choral::kernels
