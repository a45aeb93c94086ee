// An adapter's pair the other way round: against plain loops over read_a() and read_b(), at every level and in every format.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/float16.h"
#include "kernels/lora/lora_batch.h"

namespace choral::kernels {
namespace {

// Heads of 13 and 10 outputs that begin anywhere in a panel; an in that is no whole number of chunks.
constexpr int64_t kHeads = 5, kKeys = 13, kValues = 10, kIn = 75, kRows = 3, kOut = kHeads * (kKeys + kValues);
constexpr HeadColumns kKeyColumns{kHeads, 0, kKeys + kValues, kKeys}, kValueColumns{kHeads, kKeys, kKeys + kValues, kValues};

class Pair {
 public:
  Pair(int64_t in, int64_t rank, DType type, LoRAFormat format, bool dora, uint32_t seed) : random_(seed) {
    const auto a = stored(type, rank, in), b = stored(type, kOut, rank);
    const LoRASliceSource slice{.out_begin = 0, .a = view(a, type, rank, in), .b = view(b, type, kOut, rank), .scale = 1.5F};
    std::vector<float> factor;
    for (int64_t c = 0; dora && c < kOut; ++c) factor.push_back(0.5F + static_cast<float>(random_() % 100) / 50.0F);
    matrix_ = *LoRAMatrix::pack({.in = in, .out = kOut, .slices = {&slice, 1}, .output_factor = factor}, format);
  }
  const LoRAMatrix& operator*() const { return *matrix_; }

 private:
  std::vector<std::byte> stored(DType type, int64_t rows, int64_t cols) {
    std::vector<std::byte> bytes(rows * row_bytes(type, cols));
    std::normal_distribution<float> normal;
    std::byte* to = bytes.data();
    const auto put = [&to](const auto& value) {
      std::memcpy(to, &value, sizeof value);
      to += sizeof value;
    };
    for (int64_t i = 0; i < rows * cols; ++i) {
      if (type == DType::kQ8_0 && i % 32 == 0) put(to_float16(0.01F).bits);
      if (type == DType::kQ8_0) put(static_cast<int8_t>(static_cast<int>(random_() % 255) - 127));
      if (type == DType::kF32) put(normal(random_));
      if (type == DType::kF16) put(to_float16(normal(random_)).bits);
      if (type == DType::kBF16) put(to_bfloat16(normal(random_)).bits);
    }
    return bytes;
  }
  static TensorView view(const std::vector<std::byte>& bytes, DType type, int64_t rows, int64_t cols) {
    return {bytes.data(), type, {rows, cols}, kCpuDevice};
  }

  std::mt19937 random_;
  std::optional<LoRAMatrix> matrix_;
};

std::vector<float> values(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(count);
  for (float& v : out) v = normal(random);
  return out;
}

struct Sum {
  double value = 0, magnitude = 0;
};

// What the term adds to element k of the row whose part of q is this head's.
Sum oracle(const LoRATerm& term, const float* q, int64_t head, int64_t k) {
  const LoRAMatrix& m = *term.matrix;
  Sum sum;
  std::vector<float> a(m.in()), b(m.rank());
  for (int64_t j = 0; j < m.rank(); ++j) {
    m.read_a(j, a);
    for (int64_t i = 0; i < kKeys; ++i) {
      const int64_t c = kKeyColumns.of(head) + i;
      m.read_b(0, c, b);
      const double f = m.output_factor().empty() ? 1.0 : m.output_factor()[c];
      const double product = f * q[i] * b[j] * term.factor * a[k];
      sum.value += product;
      sum.magnitude += std::abs(product);
    }
  }
  return sum;
}

std::vector<CpuLevel> distinct_levels() {
  auto levels = usable_cpu_levels();
  std::erase_if(levels, [](CpuLevel level) { return level > CpuLevel::kAvx512; });
  return levels;
}

struct Case {
  DType type;
  LoRAFormat format;
  int64_t in, rank;
  bool dora;
};
const std::vector<Case> kCases = {
    {DType::kF32, LoRAFormat::kAuto, kIn, 1, false},  {DType::kF32, LoRAFormat::kAuto, 64, 4, true},
    {DType::kBF16, LoRAFormat::kAuto, kIn, 7, false}, {DType::kBF16, LoRAFormat::kAuto, kIn, 16, true},
    {DType::kF16, LoRAFormat::kAuto, kIn, 18, false}, {DType::kBF16, LoRAFormat::kI8, kIn, 11, true},
    {DType::kQ8_0, LoRAFormat::kAuto, 96, 64, false}, {DType::kF32, LoRAFormat::kBF16, 31, 2, false},
};

TEST(LoRAAbsorb, MatchesTheOracle) {
  // Heads of q and y lie apart, as a rotated part follows each.
  constexpr int64_t kQCols = kHeads * (kKeys + 4);
  const auto q = values(kRows * kQCols, 3);
  for (const Case& c : kCases) {
    const Pair first(c.in, c.rank, c.type, c.format, c.dora, 1), second(c.in, 3, DType::kF32, LoRAFormat::kAuto, false, 2);
    const LoRATerm terms[] = {{&*first, nullptr, 0.75F}, {&*second, nullptr, -2.0F}};
    const int64_t y_stride = c.in + 2, y_cols = kHeads * y_stride;
    const auto before = values(kRows * y_cols, 4);
    for (const CpuLevel level : distinct_levels()) {
      SCOPED_TRACE(fmt::format("{}, rank {}, in {}, {}", dtype_name(c.type), c.rank, c.in, cpu_level_name(level)));
      auto y = before;
      ThreadPool pool(2);
      Arena arena;
      const LoRAAbsorb item{terms, kKeyColumns, {q.data(), kRows, kQCols}, {y.data(), kRows, y_cols}};
      lora_absorb({pool, level, arena}, {&item, 1});
      for (int64_t i = 0; i < kRows * y_cols; ++i) {
        const int64_t row = i / y_cols, head = i % y_cols / y_stride, k = i % y_stride;
        if (k >= c.in) {
          ASSERT_EQ(y[i], before[i]) << "beyond the head's columns";
          continue;
        }
        Sum sum{before[i], std::abs(before[i])};
        for (const LoRATerm& term : terms) {
          const Sum share = oracle(term, q.data() + row * kQCols + head * (kQCols / kHeads), head, k);
          sum.value += share.value;
          sum.magnitude += share.magnitude;
        }
        ASSERT_NEAR(y[i], sum.value, 0x1p-22 * sum.magnitude) << "row " << row << ", head " << head << ", element " << k;
      }
      // A row alone, with one thread: the same bits.
      auto alone = before;
      ThreadPool one(1);
      for (int64_t row = 0; row < kRows; ++row) {
        const LoRAAbsorb own{terms, kKeyColumns, {q.data() + row * kQCols, 1, kQCols}, {alone.data() + row * y_cols, 1, y_cols}};
        lora_absorb({one, level, arena}, {&own, 1});
      }
      ASSERT_EQ(std::memcmp(alone.data(), y.data(), y.size() * sizeof(float)), 0);
    }
  }
}

TEST(LoRAExpand, ColumnsFromAnyOneOnHaveTheBitsOfTheWhole) {
  for (const Case& c : kCases) {
    const Pair pair(c.in, c.rank, c.type, c.format, c.dora, 5);
    const auto middle = values(kRows * c.rank, 6), before = values(kRows * kOut, 7);
    for (const CpuLevel level : distinct_levels()) {
      ThreadPool pool(2);
      Arena arena;
      const LoRATerm term{&*pair, middle.data(), 0.5F};
      auto whole = before, heads = before;
      lora_expand(level, {&term, 1}, 0, {whole.data(), kRows, kOut});
      std::vector<LoRAExpand> items;
      const MatrixView<float> y(heads.data(), kRows, kOut);
      for (const auto& columns : {kKeyColumns, kValueColumns}) {
        for (int64_t h = 0; h < kHeads; ++h)
          items.push_back({{&term, 1}, y.sub_cols(columns.of(h), columns.count), columns.of(h)});
      }
      lora_expand({pool, level, arena}, items);
      ASSERT_EQ(std::memcmp(whole.data(), heads.data(), whole.size() * sizeof(float)), 0)
          << dtype_name(c.type) << " " << cpu_level_name(level);
    }
  }
}

}  // namespace
}  // namespace choral::kernels
