#include "kernels/lora/lora_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/float16.h"
#include "kernels/ref/lora.h"

namespace choral::kernels {
namespace {

constexpr double kUnit = 0x1p-24;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Rows {
  int64_t rows, cols, stride;
  std::vector<float> data;

  Rows(int64_t r, int64_t c, int64_t extra = 0, float fill = 0)
      : rows(r), cols(c), stride(c + extra), data(r * (c + extra), fill) {}
  MatrixView<float> view() { return {data.data(), rows, cols, stride}; }
  MatrixView<const float> view() const { return {data.data(), rows, cols, stride}; }
};

Rows random_rows(int64_t rows, int64_t cols, uint32_t seed, int64_t extra = 0) {
  Rows m(rows, cols, extra, kNaN);  // between rows: must never be read into a result
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < rows; ++i) {
    for (float& v : m.view().row_span(i)) v = normal(random);
  }
  return m;
}

float stored_as(float v, DType type) {
  if (type == DType::kBF16) return to_float(to_bfloat16(v));
  return type == DType::kF16 ? to_float(to_float16(v)) : v;
}

// A matrix as a file holds it; `data` begins at an odd address, as tensors in files may.
struct FileTensor {
  std::vector<std::byte> bytes;
  TensorView view;

  FileTensor(const Rows& values, DType type) : bytes(row_bytes(type, values.cols) * values.rows + 1) {
    view = {bytes.data() + 1, type, {values.rows, values.cols}, kCpuDevice};
    for (int64_t i = 0; i < values.rows * values.cols; ++i) {
      const float v = values.data[i];
      std::byte* to = bytes.data() + 1 + row_bytes(type, i);
      const uint16_t half = type == DType::kBF16 ? to_bfloat16(v).bits : to_float16(v).bits;
      type == DType::kF32 ? std::memcpy(to, &v, 4) : std::memcpy(to, &half, 2);
    }
  }
};

struct SliceShape {
  int64_t out_begin, out, rank;
  DType a_type = DType::kBF16, b_type = DType::kBF16;
};

// int8 as the contract says it: max|v| / 127 a row, rounded to nearest even.
void quantise_rows_of(Rows& m) {
  for (int64_t i = 0; i < m.rows; ++i) {
    float largest = 0;
    for (const float v : m.view().row_span(i)) largest = std::max(largest, std::fabs(v));
    const float scale = largest / 127.0F;
    for (float& v : m.view().row_span(i)) v = scale == 0 ? 0 : std::rint(v / scale) * scale;
  }
}

// An adapter of one layer, packed, and what its panels hold as floats.
struct Adapter {
  int64_t in, out;
  std::deque<Rows> values;
  std::deque<FileTensor> tensors;
  std::vector<LoRASliceSource> sources;
  std::vector<ref::LoRASlice> slices;
  std::vector<float> output_factor, offset;
  std::optional<LoRAMatrix> matrix;

  Adapter(int64_t in_, int64_t out_, const std::vector<SliceShape>& shapes, LoRAFormat format, uint32_t seed,
          bool rescales = false, bool offsets = false)
      : in(in_), out(out_) {
    for (const SliceShape& shape : shapes) {
      const float scale = 0.25F + static_cast<float>(slices.size());
      Rows a = random_rows(shape.rank, in, ++seed), b = random_rows(shape.out, shape.rank, ++seed);
      for (float& v : a.data) v = stored_as(v, shape.a_type);
      for (float& v : b.data) v = stored_as(v, shape.b_type);
      sources.push_back(
          {shape.out_begin, tensors.emplace_back(a, shape.a_type).view, tensors.emplace_back(b, shape.b_type).view, scale});
      for (Rows* m : {&a, &b}) {
        if (format == LoRAFormat::kI8) quantise_rows_of(*m);
        for (float& v : m->data) {
          if (format == LoRAFormat::kBF16) v = stored_as(v, DType::kBF16);
          if (format == LoRAFormat::kF16) v = stored_as(v, DType::kF16);
        }
      }
      const Rows& kept_a = values.emplace_back(a);
      const Rows& kept_b = values.emplace_back(b);
      slices.push_back({shape.out_begin, kept_a.view(), kept_b.view(), scale});
    }
    if (rescales) output_factor = random_rows(1, out, ++seed).data;
    if (offsets) offset = random_rows(1, out, ++seed).data;
    auto packed = LoRAMatrix::pack({in, out, sources, output_factor, offset}, format);
    CHORAL_CHECK(packed.ok(), packed.status().message());
    matrix = std::move(*packed);
  }

  int64_t rank() const { return matrix->rank(); }
  ref::LoRATerm ref_term(const Rows& middle, float factor) const {
    return {slices, middle.view(), factor, output_factor, offset};
  }
};

Rows shrink(const Adapter& adapter, CpuLevel level, MatrixView<const float> x, float factor) {
  Rows middle(x.rows, adapter.rank(), 3, -7.0F);
  adapter.matrix->shrink(level, x, factor, 0, adapter.rank(), middle.view());
  return middle;
}

void expect_equal_bits(std::span<const float> a, std::span<const float> b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t j = 0; j < a.size(); ++j) {
    ASSERT_EQ(std::bit_cast<uint32_t>(a[j]), std::bit_cast<uint32_t>(b[j]))
        << what << " column " << j << ": " << a[j] << " " << b[j];
  }
}

constexpr LoRAFormat kMatrixFormats[] = {LoRAFormat::kAuto, LoRAFormat::kF32, LoRAFormat::kF16, LoRAFormat::kBF16,
                                         LoRAFormat::kI8};

// Levels with code of their own; the ones above run what avx512 runs.
std::vector<CpuLevel> levels() {
  std::vector<CpuLevel> all;
  for (const CpuLevel level : usable_cpu_levels()) {
    if (level <= CpuLevel::kAvx512) all.push_back(level);
  }
  return all;
}

class LoRAMatrixAtLevel : public testing::TestWithParam<CpuLevel> {
 protected:
  // The chain of one lane takes part of k, then at most 4 additions of lanes, the scale twice: never more than in + 6 roundings.
  // int8 has one more, of the row's scale.
  void check_shrink(const Adapter& adapter, int64_t rows, float factor) {
    const Rows x = random_rows(rows, adapter.in, static_cast<uint32_t>(rows * 7 + adapter.in), rows % 3);
    const Rows middle = shrink(adapter, GetParam(), x.view(), factor);
    std::vector<double> exact(rows * adapter.rank()), magnitude(exact.size());
    const MatrixView<double> e(exact.data(), rows, adapter.rank()), g(magnitude.data(), rows, adapter.rank());
    ref::lora_shrink(adapter.slices, x.view(), factor, e, g);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < adapter.rank(); ++j) {
        ASSERT_LE(std::fabs(middle.view().row(i)[j] - e.row(i)[j]), static_cast<double>(adapter.in + 8) * kUnit * g.row(i)[j])
            << "in " << adapter.in << " rank " << adapter.rank() << " rows " << rows << " at " << i << "," << j;
      }
      for (int64_t j = adapter.rank(); j < middle.stride; ++j)
        ASSERT_EQ(middle.view().row(i)[j], -7.0F) << "wrote beyond the row";
    }
  }

  struct Part {
    const Adapter* adapter;
    float factor;
  };
  // Random middles, tiles as given by `tile_cols`; returns y.
  Rows expand(const std::vector<Part>& parts, const std::vector<Rows>& middles, const Rows& base, int64_t tile_rows,
              int64_t tile_cols) {
    Rows y = base;
    for (int64_t i = 0; i < base.rows; i += tile_rows) {
      std::vector<LoRATerm> terms;
      for (size_t t = 0; t < parts.size(); ++t) {
        terms.push_back({&*parts[t].adapter->matrix, middles[t].view().row(i), parts[t].factor});
      }
      for (int64_t c = 0; c < base.cols; c += tile_cols) {
        lora_expand(GetParam(), terms, c,
                    y.view().sub_rows(i, std::min(tile_rows, base.rows - i)).sub_cols(c, std::min(tile_cols, base.cols - c)));
      }
    }
    return y;
  }

  void check_expand(const std::vector<Part>& parts, int64_t rows) {
    const int64_t out = parts[0].adapter->out;
    const Rows base = random_rows(rows, out, static_cast<uint32_t>(rows + out), 5);
    std::vector<Rows> middles;
    std::vector<ref::LoRATerm> ref_terms;
    int64_t ranks = 0;
    for (size_t t = 0; t < parts.size(); ++t) {
      middles.push_back(random_rows(rows, parts[t].adapter->rank(), static_cast<uint32_t>(50 + t)));
      ranks += parts[t].adapter->rank();
    }
    for (size_t t = 0; t < parts.size(); ++t) ref_terms.push_back(parts[t].adapter->ref_term(middles[t], parts[t].factor));
    std::vector<double> exact(rows * out), magnitude(exact.size());
    const MatrixView<double> e(exact.data(), rows, out), g(magnitude.data(), rows, out);
    ref::lora_expand(ref_terms, base.view(), e, g);
    const Rows y = expand(parts, middles, base, rows, round_up(out, 16));
    const double steps = static_cast<double>(ranks) + 8.0 * static_cast<double>(parts.size());
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t c = 0; c < out; ++c) {
        ASSERT_LE(std::fabs(y.view().row(i)[c] - e.row(i)[c]), steps * kUnit * g.row(i)[c])
            << "out " << out << " ranks " << ranks << " rows " << rows << " at " << i << "," << c;
      }
      for (int64_t c = out; c < y.stride; ++c) ASSERT_TRUE(std::isnan(y.data[i * y.stride + c]));
    }
    // However tiles are cut, and each row by itself.
    for (const int64_t tile_rows : {int64_t{1}, int64_t{3}, int64_t{4}, rows}) {
      for (const int64_t tile_cols : {16, 48, 4096}) {
        const Rows again = expand(parts, middles, base, tile_rows, tile_cols);
        for (int64_t i = 0; i < rows; ++i) {
          ASSERT_NO_FATAL_FAILURE(expect_equal_bits(again.view().row_span(i), y.view().row_span(i),
                                                    fmt::format("tiles of {} x {}, row {}", tile_rows, tile_cols, i)));
        }
      }
    }
  }

  static int64_t round_up(int64_t a, int64_t multiple) { return (a + multiple - 1) / multiple * multiple; }
};

TEST_P(LoRAMatrixAtLevel, OddShapesInEveryFormat) {
  for (const LoRAFormat format : kMatrixFormats) {
    uint32_t seed = 0;
    for (const int64_t in : {1, 2, 7, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 70}) {
      for (const int64_t rank : {1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17}) {
        const int64_t out = 1 + (in * 5 + rank) % 70;
        const DType type = in % 3 == 0 ? DType::kF32 : in % 3 == 1 ? DType::kF16 : DType::kBF16;
        const Adapter adapter(in, out, {{0, out, rank, type, type}}, format, seed += 10);
        const int64_t rows = 1 + (in + rank) % 9;
        ASSERT_NO_FATAL_FAILURE(check_shrink(adapter, rows, 1.5F)) << static_cast<int>(format);
        ASSERT_NO_FATAL_FAILURE(check_expand({{&adapter, 1.5F}}, rows)) << static_cast<int>(format);
      }
    }
  }
}

TEST_P(LoRAMatrixAtLevel, LargeRanksAndManyRows) {
  for (const LoRAFormat format : kMatrixFormats) {
    for (const int64_t rank : {64, 256, 511, 512}) {
      const Adapter adapter(70, 50, {{0, 50, rank}}, format, 1);
      ASSERT_NO_FATAL_FAILURE(check_shrink(adapter, 3, -0.5F));
      ASSERT_NO_FATAL_FAILURE(check_expand({{&adapter, -0.5F}}, 5));
    }
    const Adapter adapter(600, 70, {{0, 70, 20}}, format, 1);
    for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 33}) {
      ASSERT_NO_FATAL_FAILURE(check_shrink(adapter, rows, 2.0F));
      ASSERT_NO_FATAL_FAILURE(check_expand({{&adapter, 2.0F}}, rows));
    }
  }
}

// q, k, v with borders off the grid, two slices in one panel of y, a part missing, and each of DoRA and offsets.
TEST_P(LoRAMatrixAtLevel, SlicesFactorsAndOffsets) {
  const std::vector<std::vector<SliceShape>> layouts = {
      {{0, 20, 5}, {20, 9, 3}, {29, 21, 8}},  // three apart at 20 and 29
      {{3, 2, 1}, {5, 4, 7}, {12, 2, 2}},     // all in the first panel
      {{33, 1, 4}},                           // a single column
      {{16, 16, 16}},                         // one panel, the rest without adapter
      {{0, 16, 3}, {37, 13, 9}},              // the middle part missing
      {},                                     // nothing but factor or offset
  };
  for (const LoRAFormat format : kMatrixFormats) {
    for (const auto& layout : layouts) {
      for (int form = 0; form < 4; ++form) {
        const Adapter adapter(40, 50, layout, format, 3, (form & 1) != 0, (form & 2) != 0);
        EXPECT_EQ(adapter.matrix->is_plain(), form == 0);
        for (const int64_t rows : {1, 5, 9}) {
          if (adapter.rank() > 0) {
            ASSERT_NO_FATAL_FAILURE(check_shrink(adapter, rows, 0.75F));
          }
          ASSERT_NO_FATAL_FAILURE(check_expand({{&adapter, 0.75F}}, rows)) << "form " << form;
        }
      }
    }
  }
}

TEST_P(LoRAMatrixAtLevel, MixesOfAdapters) {
  for (int forms = 0; forms < 16; ++forms) {  // DoRA's W·x is the tile before any term, whichever term it is
    const Adapter one(40, 45, {{0, 20, 5}, {30, 15, 3}}, LoRAFormat::kAuto, 1, (forms & 1) != 0, (forms & 2) != 0);
    const Adapter two(40, 45, {{10, 35, 16}}, LoRAFormat::kI8, 30, (forms & 4) != 0, (forms & 8) != 0);
    const Adapter three(40, 45, {{0, 45, 1}}, LoRAFormat::kF32, 60);
    for (const int64_t rows : {1, 4, 9}) {
      ASSERT_NO_FATAL_FAILURE(check_expand({{&one, 0.5F}, {&two, -2.0F}}, rows)) << forms;
      ASSERT_NO_FATAL_FAILURE(check_expand({{&one, 0.5F}, {&two, -2.0F}, {&three, 1.0F}}, rows)) << forms;
    }
  }
}

// Invariant 1 of the middle: any number of rows, any cut of the ranks.
TEST_P(LoRAMatrixAtLevel, RowsAndCutsDoNotShowInTheBits) {
  for (const LoRAFormat format : kMatrixFormats) {
    for (const int64_t in : {33, 64, 1000}) {
      const Adapter adapter(in, 40, {{0, 20, 13}, {20, 20, 14}}, format, 5);
      const Rows x = random_rows(33, in, 6, 1);
      std::vector<Rows> alone;
      for (int64_t i = 0; i < 33; ++i) alone.push_back(shrink(adapter, GetParam(), x.view().sub_rows(i, 1), 0.3F));
      for (const int64_t rows : {2, 3, 4, 5, 6, 7, 8, 9, 33}) {
        for (const int64_t cut : {8, 16, 24, 27}) {
          Rows middle(rows, 27);
          const auto part = x.view().sub_rows(33 - rows, rows);
          adapter.matrix->shrink(GetParam(), part, 0.3F, 0, cut, middle.view());
          if (cut < 27) adapter.matrix->shrink(GetParam(), part, 0.3F, cut, 27, middle.view());
          for (int64_t i = 0; i < rows; ++i) {
            ASSERT_NO_FATAL_FAILURE(expect_equal_bits(middle.view().row_span(i), alone[33 - rows + i].view().row_span(0),
                                                      fmt::format("{} rows, row {}, cut {}", rows, i, cut)));
          }
        }
      }
    }
  }
}

// Columns without adapter keep every bit, a negative zero too, and a row's NaN stays in its row and its slice's columns.
TEST_P(LoRAMatrixAtLevel, ColumnsWithoutAdapterAreUntouched) {
  const Adapter adapter(8, 64, {{18, 3, 2}, {40, 24, 3}}, LoRAFormat::kAuto, 1);
  for (const int64_t rows : {1, 3, 8}) {
    Rows middle = random_rows(rows, 5, 2);
    middle.view().row(rows - 1)[0] = kNaN;
    Rows y(rows, 64, 0, -0.0F);
    const LoRATerm term{&*adapter.matrix, middle.data.data(), 1.0F};
    lora_expand(GetParam(), {&term, 1}, 0, y.view());
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t c = 0; c < 64; ++c) {
        const float v = y.view().row(i)[c];
        if (c < 18 || (c >= 21 && c < 40)) {
          ASSERT_EQ(std::bit_cast<uint32_t>(v), 0x80000000u) << c;
        } else {
          ASSERT_EQ(std::isnan(v), i == rows - 1 && c < 21) << i << " " << c;
        }
      }
    }
  }
}

TEST_P(LoRAMatrixAtLevel, EveryHalfAndBFloatWidensExactly) {
  for (const DType type : {DType::kF16, DType::kBF16}) {
    Rows a(1, 64);
    for (int64_t first = 0; first < (1 << 16); first += 64) {  // x picks one of 64; 0 · inf would be NaN, so none of them is inf
      for (int64_t i = 0; i < 64; ++i) {
        const auto bits = static_cast<uint16_t>(first + i);
        a.data[i] = type == DType::kF16 ? to_float(Float16{bits}) : to_float(BFloat16{bits});
      }
      if (!std::isfinite(a.data[63])) continue;
      const FileTensor tensor(a, type), b(Rows(1, 1, 0, 1.0F), type);
      const LoRASliceSource slice{0, tensor.view, b.view, 1.0F};
      const auto matrix = LoRAMatrix::pack({64, 1, {&slice, 1}, {}, {}}, LoRAFormat::kAuto);
      ASSERT_TRUE(matrix.ok());
      for (size_t pick = 0; pick < 64; ++pick) {
        Rows x(1, 64), middle(1, 1);
        x.data[pick] = 1.0F;
        matrix->shrink(GetParam(), x.view(), 1.0F, 0, 1, middle.view());
        ASSERT_EQ(middle.data[0], a.data[pick]) << first << " + " << pick;
      }
    }
  }
  Rows special(2, 1);
  special.data = {std::numeric_limits<float>::infinity(), kNaN};
  for (const DType type : {DType::kF16, DType::kBF16}) {
    const FileTensor a(special, type), b(Rows(1, 2, 0, 1.0F), type);
    const LoRASliceSource slice{0, a.view, b.view, 1.0F};
    const auto matrix = LoRAMatrix::pack({1, 1, {&slice, 1}, {}, {}}, LoRAFormat::kAuto);
    Rows x(1, 1, 0, -1.0F), middle(1, 2);
    matrix->shrink(GetParam(), x.view(), 1.0F, 0, 2, middle.view());
    EXPECT_EQ(middle.data[0], -std::numeric_limits<float>::infinity());
    EXPECT_TRUE(std::isnan(middle.data[1]));
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, LoRAMatrixAtLevel, testing::ValuesIn(levels()),
                         [](const auto& test) { return std::string(cpu_level_name(test.param)); });

TEST(LoRAMatrixPack, KeepsTrueRanksAndTheFilesTypes) {
  const auto bytes = [](DType a, DType b, LoRAFormat format) {
    return Adapter(64, 32, {{0, 32, 5, a, b}}, format, 1).matrix->panel_bytes();
  };
  EXPECT_EQ(bytes(DType::kBF16, DType::kBF16, LoRAFormat::kAuto), 5 * 64 * 2 + 5 * 32 * 2);
  EXPECT_EQ(bytes(DType::kF32, DType::kF16, LoRAFormat::kAuto), 5 * 64 * 4 + 5 * 32 * 2);
  EXPECT_EQ(bytes(DType::kF32, DType::kF32, LoRAFormat::kBF16), 5 * 64 * 2 + 5 * 32 * 2);
  EXPECT_EQ(bytes(DType::kF32, DType::kF32, LoRAFormat::kI8), 5 * 64 + 5 * 32 + 32 * 4);
  // Slices of bf16 and fp16 share what holds both exactly.
  const Adapter mixed(64, 32, {{0, 16, 2, DType::kBF16, DType::kF16}, {16, 16, 2, DType::kF16, DType::kF16}}, LoRAFormat::kAuto,
                      1);
  EXPECT_EQ(mixed.matrix->panel_bytes(), 4 * 64 * 4 + 2 * 2 * 16 * 2);
  EXPECT_GT(mixed.matrix->size_bytes(), mixed.matrix->panel_bytes());
  mixed.matrix->prefetch(-5, 1 << 20);
}

// Where lora_micro.h has value `i` of row `row` of 16, of `rows` in a panel or chunk.
int64_t pair_index(DType type, int64_t row, int64_t rows, int64_t i) {
  const bool paired = type == DType::kBF16 && row / 2 * 2 + 1 < rows;
  return paired ? row / 2 * 32 + i * 2 + row % 2 : row * 16 + i;
}

// A type packed as itself, value by value: borders and tails are zeros, and no byte of the caller's memory is left as it was.
TEST(LoRAMatrixPack, FillsTheCallersMemoryAsThePlainLoopDoes) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    const int64_t size = row_bytes(type, 1);
    for (const int64_t in : {1, 16, 31, 32, 33, 96}) {
      for (const int64_t rank : {1, 2, 3, 8, 9}) {
        const Adapter adapter(in, 60, {{3, 2, rank, type, type}, {5, 41, rank + 1, type, type}}, LoRAFormat::kAuto, 7);
        auto matrix = LoRAMatrix::lay_out({in, 60, adapter.sources, {}, {}}, LoRAFormat::kAuto);
        ASSERT_TRUE(matrix.ok());
        std::vector<std::byte> panels(matrix->panel_bytes(), std::byte{0xEE}), expected(panels.size());
        ASSERT_TRUE(matrix->fill({in, 60, adapter.sources, {}, {}}, panels.data()).ok());

        const int64_t ranks = 2 * rank + 1, chunks = (in + 31) / 32;
        int64_t j = 0, b = ranks * chunks * 32;  // of the next row of A, and of the slice's first panel
        for (const LoRASliceSource& slice : adapter.sources) {
          const int64_t own = slice.a.shape[0], out = slice.b.shape[0];
          for (int64_t r = 0; r < own; ++r, ++j) {
            const int64_t group = j / 8 * 8, in_group = std::min<int64_t>(8, ranks - group);
            for (int64_t k = 0; k < in; ++k) {
              const int64_t at = (group * chunks + k / 32 * in_group + j - group) * 32 + pair_index(type, k % 32 / 16, 2, k % 16);
              std::memcpy(expected.data() + at * size, slice.a.row(r) + k * size, size);
            }
          }
          const int64_t first = slice.out_begin / 16;
          for (int64_t c = slice.out_begin; c < slice.out_begin + out; ++c) {
            for (int64_t r = 0; r < own; ++r) {
              const int64_t at = b + (c / 16 - first) * own * 16 + pair_index(type, r, own, c % 16);
              std::memcpy(expected.data() + at * size, slice.b.row(c - slice.out_begin) + r * size, size);
            }
          }
          b += ((slice.out_begin + out + 15) / 16 - first) * own * 16;
        }
        ASSERT_EQ(b * size, matrix->panel_bytes());
        ASSERT_TRUE(panels == expected) << dtype_name(type) << " in " << in << " rank " << rank;
      }
    }
  }
}

TEST(LoRAMatrixPack, RefusesWhatDoesNotFit) {
  const Rows a(4, 8, 0, 1.0F), b(6, 4, 0, 1.0F), other(6, 3, 0, 1.0F);
  const FileTensor fa(a, DType::kF32), fb(b, DType::kF32), fother(other, DType::kF32);
  const auto message = [](const LoRAMatrixSource& source, LoRAFormat format = LoRAFormat::kAuto) {
    const auto packed = LoRAMatrix::pack(source, format);
    return packed.ok() ? std::string("ok") : packed.status().to_string();
  };
  using testing::AllOf;
  using testing::HasSubstr;
  const LoRASliceSource good{0, fa.view, fb.view, 1.0F};
  EXPECT_EQ(message({8, 6, {&good, 1}, {}, {}}), "ok");
  EXPECT_THAT(message({9, 6, {&good, 1}, {}, {}}), AllOf(HasSubstr("[4, 8]"), HasSubstr("9 inputs"), HasSubstr("slice 0")));
  EXPECT_THAT(message({8, 5, {&good, 1}, {}, {}}), AllOf(HasSubstr("[6, 4]"), HasSubstr("0 to 5")));
  const LoRASliceSource ranks{0, fa.view, fother.view, 1.0F};
  EXPECT_THAT(message({8, 6, {&ranks, 1}, {}, {}}), AllOf(HasSubstr("[6, 3]"), HasSubstr("rank")));
  const LoRASliceSource overlapping[] = {good, {5, fa.view, fb.view, 1.0F}};
  EXPECT_THAT(message({8, 12, overlapping, {}, {}}), AllOf(HasSubstr("slice 1"), HasSubstr("outputs 6 to 12")));
  const LoRASliceSource negative{-1, fa.view, fb.view, 1.0F};
  EXPECT_THAT(message({8, 6, {&negative, 1}, {}, {}}), HasSubstr("output -1"));
  const LoRASliceSource infinite{0, fa.view, fb.view, std::numeric_limits<float>::infinity()};
  EXPECT_THAT(message({8, 6, {&infinite, 1}, {}, {}}), HasSubstr("scale"));
  const float factors[] = {1.0F, 2.0F};
  EXPECT_THAT(message({8, 6, {&good, 1}, factors, {}}), HasSubstr("output_factor has 2"));
  EXPECT_THAT(message({8, 6, {&good, 1}, {}, factors}), HasSubstr("offset has 2"));
  EXPECT_THAT(message({0, 6, {}, {}, {}}), HasSubstr("0 inputs"));
  LoRASliceSource typed = good;
  typed.a.dtype = DType::kI8;
  EXPECT_THAT(message({8, 6, {&typed, 1}, {}, {}}), HasSubstr("int8"));
  LoRASliceSource away = good;
  away.b.device.host_accessible = false;
  EXPECT_THAT(message({8, 6, {&away, 1}, {}, {}}), HasSubstr("device"));
  Rows large(4, 8, 0, 1e6F);
  const FileTensor fl(large, DType::kF32);
  const LoRASliceSource too_large_for_f16{0, fl.view, fb.view, 1.0F};
  EXPECT_THAT(message({8, 6, {&too_large_for_f16, 1}, {}, {}}, LoRAFormat::kF16), HasSubstr("too large"));
  EXPECT_EQ(message({8, 6, {&too_large_for_f16, 1}, {}, {}}, LoRAFormat::kBF16), "ok");
  large.data[3] = kNaN;
  const FileTensor fn(large, DType::kF32);
  const LoRASliceSource nan{0, fn.view, fb.view, 1.0F};
  EXPECT_THAT(message({8, 6, {&nan, 1}, {}, {}}, LoRAFormat::kI8), HasSubstr("int8"));
}

}  // namespace
}  // namespace choral::kernels
