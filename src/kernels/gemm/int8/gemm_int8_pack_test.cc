// What pack_int8() accepts, refuses and keeps.
#include "kernels/gemm/int8/gemm_int8_test_data.h"
#include "kernels/gemm/int8/int8_panels.h"
#include "kernels/gemm/packed_matrix_test.h"

namespace choral::kernels {
namespace {

using testing::HasSubstr;

std::unique_ptr<PackedMatrix> pack(const std::vector<Int8Part>& parts, const Int8Options& options = {}) {
  ThreadPool pool(2);
  return packed_or_die(pack_int8(parts, options, pool));
}
std::string error(const std::vector<Int8Part>& parts, const Int8Options& options = {}) {
  ThreadPool pool(1);
  return refusal(pack_int8(parts, options, pool));
}

TEST(GemmInt8Pack, PartsAreStackedInTheirOrder) {
  for (const int64_t group : {0, 32}) {
    const int64_t k = 70;
    const StackedParts stack;
    const auto a = int8_matrix(stack.kRowsOfA, k, group, Int8Fill::kRandom, 1),
               b = int8_matrix(stack.kRowsOfB, k, group, Int8Fill::kRandom, 2);
    const auto w = pack(stack.parts(a.part(), b.part()), {.group_size = group});
    EXPECT_EQ(w->n(), 34);
    EXPECT_EQ(w->k(), k);
    EXPECT_EQ(w->size_bytes(), 3 * (a.groups() * 64 + 72 * 16));
    std::vector<float> got(static_cast<size_t>(k));
    for (int64_t row = 0; row < 34; ++row) {
      const auto& source = stack.of_a(row) ? a : b;
      const int64_t at = stack.source(row);
      ASSERT_TRUE(w->read_row(row, got).ok());
      for (int64_t i = 0; i < k; ++i) {
        const float scale = source.scales[static_cast<size_t>(at * source.groups() + (group == 0 ? 0 : i / group))];
        ASSERT_EQ(got[static_cast<size_t>(i)], static_cast<float>(source.w[static_cast<size_t>(at * k + i)]) * scale) << row;
      }
    }
  }
}

// A static matrix holds the product's scales; its rows are W's own.
TEST(GemmInt8Pack, RowsOfAStaticMatrixAreWithoutTheInputsScale) {
  auto data = int8_matrix(3, 10, 0, Int8Fill::kRandom, 3);
  data.scales = {0.5f, 0.25f, 1.0f};
  const auto w = pack({data.part()}, {.input = {StaticQuant{0.125f, 3}}});
  std::vector<float> got(10);
  ASSERT_TRUE(w->read_row(1, got).ok());
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(got[i], static_cast<float>(data.w[10 + i]) * 2.0f);
}

TEST(GemmInt8Pack, WrongPartsAreRefusedByName) {
  const auto data = int8_matrix(4, 64, 0, Int8Fill::kRandom, 1), wide = int8_matrix(4, 96, 0, Int8Fill::kRandom, 2);
  expect_wrong_parts_are_refused(data.part(), wide.part(), "an int8 weight",
                                 [](const std::vector<Int8Part>& parts) { return error(parts); });
  EXPECT_THAT(error({data.part()}, {.group_size = 32}), HasSubstr("4 rows with 2 each need 8"));
  EXPECT_THAT(error({data.part()}, {.group_size = 48}), HasSubstr("not in groups of 48"));
}

TEST(GemmInt8Pack, WrongStaticInputsAreRefused) {
  const auto data = int8_matrix(4, 64, 0, Int8Fill::kLargest, 1);
  const Int8Part good = data.part();
  for (const StaticQuant wrong : {StaticQuant{0.0f, 0}, StaticQuant{-1.0f, 0}, StaticQuant{NAN, 0}, StaticQuant{INFINITY, 0},
                                  StaticQuant{1.0f, 128}, StaticQuant{1.0f, -129}}) {
    EXPECT_THAT(error({good}, {.input = {wrong}}), HasSubstr("a static input has a scale above 0"));
  }
}

TEST(GemmInt8Pack, NamesSayWhatRuns) {
  const auto data = int8_matrix(4, 64, 32, Int8Fill::kRandom, 1);
  const auto w = pack({data.part()}, {.group_size = 32, .input = {StaticQuant{1.0f, 0}}});
  EXPECT_EQ(w->format(), "int8 in groups of 32");
  EXPECT_EQ(w->kernel_name(CpuLevel::kBase), "int8 in groups of 32 x static int8, scalar");
  const auto v = pack({int8_matrix(4, 64, 0, Int8Fill::kRandom, 1).part()});
  EXPECT_EQ(v->format(), "int8");
  EXPECT_EQ(v->kernel_name(CpuLevel::kBase), "int8 x dynamic int8, scalar");
}

}  // namespace
}  // namespace choral::kernels
