#include "kernels/gemm/grouped_matmul.h"

#include <gtest/gtest.h>

#include <numeric>

#include "kernels/gemm/gemm_float.h"
#include "kernels/gemm/gemm_fp8.h"
#include "kernels/gemm/gemm_integers_test_data.h"
#include "kernels/gemm/gemm_quant.h"
#include "kernels/gemm/int8/gemm_int8_test_data.h"
#include "kernels/gemm/packed_matrix_test.h"
#include "kernels/gemm/reordered_matrix.h"

namespace choral::kernels {
namespace {

constexpr int64_t kN = 200, kK = 288;

std::unique_ptr<PackedMatrix> floats(DType as, uint32_t seed) {
  ThreadPool pool(1);
  const auto w = gaussian(kN * kK, seed);
  const WeightRows part{{reinterpret_cast<const std::byte*>(w.data()), DType::kF32, {kN, kK}, kCpuDevice}};
  return packed_or_die(pack_float({&part, 1}, as, pool));
}
std::unique_ptr<PackedMatrix> blocks(DType type, Planes planes, uint32_t seed) {
  ThreadPool pool(1);
  const auto data = random_quant_matrix(type, kN, kK, seed);
  const WeightRows part{data.view()};
  return packed_or_die(pack_quantised({&part, 1}, pool, planes));
}
std::unique_ptr<PackedMatrix> integers(const IntegerKind& kind, uint32_t seed) {
  ThreadPool pool(1);
  const auto data = integer_matrix(kN, kK, kind, IntegerFill::kRandom, seed);
  const auto part = data.part();
  return packed_or_die(pack_integers({&part, 1}, kind.options, pool));
}
std::unique_ptr<PackedMatrix> int8(int64_t group, std::optional<StaticQuant> input, uint32_t seed) {
  ThreadPool pool(1);
  const auto data = int8_matrix(kN, kK, group, Int8Fill::kRandom, seed);
  const auto part = data.part();
  return packed_or_die(pack_int8({&part, 1}, {.group_size = group, .input = {input}}, pool));
}
std::unique_ptr<PackedMatrix> fp8(uint32_t seed) {
  ThreadPool pool(1);
  std::mt19937 random(seed);
  std::vector<uint8_t> codes(kN * kK);
  for (auto& code : codes) code = static_cast<uint8_t>((random() & 0x80u) | random() % 0x7F);
  const std::vector<float> scales(kN * ceil_div(kK, int64_t{96}), 0.01f);
  const Fp8Part part{{{reinterpret_cast<const std::byte*>(codes.data()), DType::kF8E4M3, {kN, kK}, kCpuDevice}}, scales};
  return packed_or_die(pack_fp8({&part, 1}, 96, pool));
}
std::unique_ptr<PackedMatrix> reordered(uint32_t seed) {
  std::vector<int32_t> order(kK);
  std::iota(order.rbegin(), order.rend(), 0);
  return packed_or_die(reorder_input(integers({{.bits = 4, .group_size = 32}, true}, seed), order));
}

// One of each kind.
const std::vector<std::unique_ptr<PackedMatrix>>& matrices() {
  static const auto all = [] {
    std::vector<std::unique_ptr<PackedMatrix>> made;
    for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) made.push_back(floats(type, 1));
    made.push_back(blocks(DType::kQ4_0, Planes::kTwo, 2));
    made.push_back(blocks(DType::kQ8_0, Planes::kOne, 3));
    made.push_back(integers({{.bits = 4, .group_size = 32}, true}, 4));
    made.push_back(integers({{.bits = 4, .codebook = Codebook::kE2M1}, false}, 5));
    made.push_back(integers({{.bits = 8, .planes = Planes::kOneScale}, false}, 6));
    made.push_back(int8(0, std::nullopt, 7));
    made.push_back(int8(32, StaticQuant{0.05f, -3}, 8));
    made.push_back(fp8(9));
    made.push_back(reordered(10));
    return made;
  }();
  return all;
}

class GroupedMatmulTest : public testing::TestWithParam<CpuLevel> {};
INSTANTIATE_TEST_SUITE_P(Levels, GroupedMatmulTest, testing::ValuesIn(usable_cpu_levels()),
                         [](const auto& tested) { return std::string(cpu_level_name(tested.param)); });

// What becomes of one product: hooks see places of the whole, which is all groups' rows below each other.
float mark_of(int64_t row, int64_t col) { return 0.25f * static_cast<float>(row) - 0.5f * static_cast<float>(col); }
constexpr auto kAddMarks = [](int64_t row, int64_t col, MatrixView<float> tile) {
  for (int64_t i = 0; i < tile.rows; ++i) {
    for (int64_t j = 0; j < tile.cols; ++j) tile.row(i)[j] += mark_of(row + i, col + j);
  }
};
constexpr auto kScaleMarks = [](int64_t row, int64_t col, MatrixView<float> tile) {
  for (int64_t i = 0; i < tile.rows; ++i) {
    for (int64_t j = 0; j < tile.cols; ++j) tile.row(i)[j] *= 1.0f + mark_of(row + i, col + j);
  }
};

// Groups of no row, of one, of a tile, of several, and of more than a matrix takes at once; every kind beside every other.
TEST_P(GroupedMatmulTest, EachProductHasTheBitsOfItsOwn) {
  const int64_t heights[] = {1, 0, 3, 1, 40, 2, 17, 1};
  const Epilogue::Hook product_hook(kAddMarks), result_hook(kScaleMarks);
  const auto bias = gaussian(kN, 20);
  for (size_t shift = 0; shift < std::size(heights); shift += 3) {
    std::vector<int64_t> rows;
    for (size_t i = 0; i < matrices().size(); ++i) rows.push_back(heights[(i + shift) % std::size(heights)]);
    if (GetParam() != CpuLevel::kBase) rows[shift] = 260;
    const int64_t total = std::accumulate(rows.begin(), rows.end(), int64_t{0});
    const auto x = gaussian(total * kK, 30);
    const auto old = gaussian(total * kN, 31);
    // Some plain, some with everything.
    const auto product_of = [&](size_t i, int64_t first, MatrixView<float> y) {
      GroupProduct product{matrices()[i].get(), {{x.data() + first * kK, rows[i], kK}, {}}, {}, y.sub_rows(first, rows[i])};
      if (i % 3 != 0) product.epilogue.bias = bias.data();
      if (i % 2 != 0) {
        product.epilogue.product_hook = &product_hook;
        product.epilogue.result_hook = &result_hook;
        product.epilogue.accumulate = true;
        product.epilogue.row = first;
        product.epilogue.col = 16 * static_cast<int64_t>(i);
      }
      return product;
    };
    auto expected = old;
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads), one(1);
      Arena scratch;
      auto y = old;
      const MatrixView<float> whole(y.data(), total, kN), alone(expected.data(), total, kN);
      std::vector<GroupProduct> products;
      int64_t first = 0;
      for (size_t i = 0; i < rows.size(); first += rows[i++]) {
        products.push_back(product_of(i, first, whole));
        if (threads > 1) continue;
        const auto single = product_of(i, first, alone);
        single.w->multiply({one, GetParam(), scratch}, single.x.x, single.epilogue, single.y);
      }
      grouped_matmul({pool, GetParam(), scratch}, products);
      ASSERT_TRUE(same_bits(y, expected)) << threads << " threads, " << shift;
    }
  }
}

// More threads than a matrix has outputs for, so that tasks are single panels, and rows are divided.
TEST_P(GroupedMatmulTest, ManyThreadsGiveTheBitsOfOne) {
  const Epilogue::Hook product_hook(kAddMarks), result_hook(kScaleMarks);
  ThreadPool one(1), many(29);
  Arena scratch;
  for (const int64_t rows : {1, 5, 300}) {
    if (rows > 5 && GetParam() == CpuLevel::kBase) continue;  // which takes a while
    const auto x = gaussian(rows * kK, 40), old = gaussian(rows * kN, 41);
    for (const auto& matrix : matrices()) {
      auto expected = old, y = old;
      for (const auto& [pool, to] : {std::pair(&one, &expected), std::pair(&many, &y)}) {
        const Epilogue epilogue{.product_hook = &product_hook, .result_hook = &result_hook, .accumulate = true};
        matrix->multiply({*pool, GetParam(), scratch}, {x.data(), rows, kK}, epilogue, {to->data(), rows, kN});
      }
      ASSERT_TRUE(same_bits(y, expected)) << matrix->format() << ", " << rows << " rows";
    }
  }
}

TEST_P(GroupedMatmulTest, RowsQuantisedBeforeGiveTheSameBits) {
  ThreadPool pool(2);
  Arena scratch;
  const Context ctx{pool, GetParam(), scratch};
  const int64_t rows = 7;
  const auto x = gaussian(rows * kK, 2);
  std::vector<GroupProduct> products, quantised;
  std::vector<std::vector<float>> y, expected;
  for (const auto& matrix : matrices()) {
    if (!matrix->quantised_input(GetParam())) continue;
    const QuantisedRows q(scratch, *matrix->quantised_input(GetParam()), rows, kK);
    quantise_rows(ctx, {x.data(), rows, kK}, q);
    y.emplace_back(rows * kN);
    expected.emplace_back(rows * kN);
    products.push_back({matrix.get(), {{x.data(), rows, kK}, {}}, {}, {expected.back().data(), rows, kN}});
    quantised.push_back({matrix.get(), {{}, q}, {}, {y.back().data(), rows, kN}});
  }
  ASSERT_GE(products.size(), 5U);
  grouped_matmul(ctx, products);
  grouped_matmul(ctx, quantised);
  EXPECT_EQ(y, expected);
}

TEST(GroupedMatmul, NothingToMultiplyIsNothingWritten) {
  ThreadPool pool(2);
  Arena scratch;
  std::vector<float> y(kN, 3.0f);
  const GroupProduct empty{matrices()[0].get(), {{y.data(), 0, kK}, {}}, {}, {y.data(), 0, kN}};
  grouped_matmul({pool, cpu_level(), scratch}, {});
  grouped_matmul({pool, cpu_level(), scratch}, {&empty, 1});
  EXPECT_EQ(y, std::vector<float>(kN, 3.0f));
}

}  // namespace
}  // namespace choral::kernels
