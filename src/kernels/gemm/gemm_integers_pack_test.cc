// What pack_integers() accepts, refuses and keeps.
#include "kernels/gemm/gemm_integers_test_data.h"
#include "kernels/gemm/packed_matrix_test.h"

namespace choral::kernels {
namespace {

using testing::HasSubstr;

std::unique_ptr<PackedMatrix> pack(const std::vector<IntegerPart>& parts, const IntegerOptions& options = {}) {
  ThreadPool pool(2);
  return packed_or_die(pack_integers(parts, options, pool));
}
std::string error(const std::vector<IntegerPart>& parts, const IntegerOptions& options = {.bits = 4}) {
  ThreadPool pool(2);
  return refusal(pack_integers(parts, options, pool));
}

IntegerMatrixData matrix(int64_t n, int64_t k, const IntegerOptions& options, bool with_zeros = false, uint32_t seed = 1) {
  return integer_matrix(n, k, {options, with_zeros}, IntegerFill::kRandom, seed);
}

// Scales of bfloat16: scale · (q - zero) is exact.
TEST(GemmIntegersPack, RowsAreTheFloatsThatAreMultiplied) {
  const int64_t n = 19;
  for (const int64_t group : {0, 32, 64, 96, 128, 512}) {
    for (const int bits : {4, 8}) {
      for (const auto& [with_zeros, k] : {std::pair(false, 320), {true, 320}, {true, 303}, {false, 5}}) {
        const auto data = matrix(n, k, {.bits = bits, .group_size = group}, with_zeros);
        const auto w = pack({data.part()}, data.kind.options);
        std::vector<float> got(static_cast<size_t>(k));
        for (int64_t row = 0; row < n; ++row) {
          ASSERT_TRUE(w->read_row(row, got).ok());
          for (int64_t i = 0; i < k; ++i) {
            const auto at = static_cast<size_t>(row * data.groups() + i / data.group());
            const int zero = with_zeros ? data.zeros[at] : 0;
            ASSERT_EQ(got[static_cast<size_t>(i)],
                      data.scales[at] * static_cast<float>(data.q[static_cast<size_t>(row * k + i)] - zero))
                << bits << " bits in groups of " << group << ", row " << row << ", " << i;
          }
        }
      }
    }
  }
}

TEST(GemmIntegersPack, CodesOfE2M1AreItsNumbers) {
  auto data = matrix(1, 32, {.group_size = 32, .codebook = Codebook::kE2M1});
  std::iota(data.q.begin(), data.q.begin() + 16, int8_t{0});
  data.scales = {0.25f};
  std::vector<float> got(32);
  ASSERT_TRUE(pack({data.part()}, data.kind.options)->read_row(0, got).ok());
  const float numbers[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  for (size_t code = 0; code < 16; ++code) EXPECT_EQ(got[code], 0.25f * numbers[code]) << code;
}

TEST(GemmIntegersPack, PartsAreStackedInTheirOrder) {
  for (const bool with_zeros : {false, true}) {
    const int64_t k = 96;
    const IntegerOptions options{.bits = 4, .group_size = 32};
    const StackedParts stack;
    const auto a = matrix(stack.kRowsOfA, k, options, with_zeros, 1), b = matrix(stack.kRowsOfB, k, options, with_zeros, 2);
    const auto w = pack(stack.parts(a.part(), b.part()), options);
    EXPECT_EQ(w->n(), 34);
    EXPECT_EQ(w->k(), k);
    std::vector<float> got(static_cast<size_t>(k));
    for (int64_t row = 0; row < 34; ++row) {
      const auto reference = (stack.of_a(row) ? a : b).reference();
      const int64_t at = stack.source(row);
      ASSERT_TRUE(w->read_row(row, got).ok());
      for (int64_t i = 0; i < k; ++i) {
        const float expected = static_cast<float>(reference.value(at, i)) * reference.scale(at, i) + reference.min(at, i);
        ASSERT_EQ(got[static_cast<size_t>(i)], expected) << row;
      }
    }
  }
}

TEST(GemmIntegersPack, BytesAndNames) {
  const auto expect = [](const IntegerOptions& options, bool with_zeros, int64_t bytes, const char* name) {
    const auto w = pack({matrix(33, 512, options, with_zeros).part()}, options);
    EXPECT_EQ(w->size_bytes(), 3 * bytes) << name;
    EXPECT_EQ(w->format(), name);
    EXPECT_EQ(w->kernel_name(CpuLevel::kBase), fmt::format("{} x 2 int8, scalar", name));
  };
  const int64_t weights = 16 * 512 / 2;
  expect({.bits = 4, .group_size = 128}, false, weights + 4 * 64, "int4 in groups of 128");
  expect({.bits = 4, .group_size = 128}, true, weights + 4 * 128, "int4 with zeros in groups of 128");
  expect({.bits = 4, .group_size = 96}, false, weights + 16 * 64, "int4 in groups of 96");
  expect({.bits = 8, .group_size = 0}, false, 2 * weights + 2 * 64, "int8");
  expect({.bits = 4, .group_size = 32, .codebook = Codebook::kE2M1}, false, weights + 16 * 64, "e2m1 in groups of 32");
}

TEST(GemmIntegersPack, NamesSayHowXIsRounded) {
  const auto name = [](Planes planes) {
    const IntegerOptions options{.bits = 4, .group_size = 32, .planes = planes};
    return pack({matrix(3, 32, options).part()}, options)->kernel_name(CpuLevel::kBase);
  };
  EXPECT_EQ(name(Planes::kTwo), "int4 in groups of 32 x 2 int8, scalar");
  EXPECT_EQ(name(Planes::kOne), "int4 in groups of 32 x 1 int8, scalar");
  EXPECT_EQ(name(Planes::kOneScale), "int4 in groups of 32 x dynamic int8, scalar");
}

TEST(GemmIntegersPack, ZeroPointsThatAreAllZeroCostNothing) {
  auto data = matrix(20, 256, {.bits = 4, .group_size = 128}, true);
  std::fill(data.zeros.begin(), data.zeros.end(), int16_t{0});
  EXPECT_EQ(pack({data.part()}, data.kind.options)->format(), "int4 in groups of 128");
  data.zeros[7] = 1;
  EXPECT_EQ(pack({data.part()}, data.kind.options)->format(), "int4 with zeros in groups of 128");
}

TEST(GemmIntegersPack, WrongPartsAreRefusedByName) {
  const auto data = matrix(4, 64, {.bits = 4}), wide = matrix(4, 96, {.bits = 4}), zeroed = matrix(4, 64, {.bits = 4}, true);
  const IntegerPart good = data.part();
  expect_wrong_parts_are_refused(good, wide.part(), "an integer weight",
                                 [](const std::vector<IntegerPart>& parts) { return error(parts); });
  EXPECT_THAT(error({good}, {.bits = 3}), HasSubstr("integers of 3 bits"));
  EXPECT_THAT(error({good}, {.bits = 4, .group_size = 48}), HasSubstr("groups of 48 k"));
  EXPECT_THAT(error({good}, {.bits = 4, .group_size = -32}), HasSubstr("groups of -32 k"));
  EXPECT_THAT(error({good}, {.bits = 8, .codebook = Codebook::kE2M1}), HasSubstr("codes have 4"));
  EXPECT_THAT(error({good, zeroed.part()}), HasSubstr("part 1 has its zero points, part 0 has none"));
  EXPECT_THAT(error({zeroed.part(), good}), HasSubstr("part 1 has no zero points, part 0 has its own"));
  EXPECT_THAT(error({zeroed.part()}, {.bits = 4, .codebook = Codebook::kE2M1}), HasSubstr("zero points and a codebook"));
  EXPECT_THAT(error({matrix(4, 64, {.bits = 8}).part()}), HasSubstr("of 4 bits are within -8 and 7"));
  EXPECT_THAT(error({good}, {.bits = 4, .group_size = 32}), HasSubstr("4 rows with 2 each need 8"));
  IntegerPart bad = zeroed.part();
  bad.zeros = bad.zeros.first(2);
  EXPECT_THAT(error({bad}), HasSubstr("part 0 has 2 zero points; 4 rows with 1 each need 4"));
}

TEST(GemmIntegersPack, WrongNumbersAreRefusedWithTheirRow) {
  const auto error_of = [](const IntegerMatrixData& data) { return error({data.part()}, data.kind.options); };
  const auto good = matrix(70, 64, {.bits = 4}, true);
  for (const int value : {-9, 8, 127, -128}) {
    auto data = good;
    data.q[33 * 64 + 5] = data.q[64 * 64] = static_cast<int8_t>(value);
    EXPECT_THAT(error_of(data), HasSubstr(fmt::format("part 0 has {} in row 33; integers of 4 bits are within -8 and 7", value)));
  }
  for (const float value : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    auto data = good;
    data.scales[9] = value;
    EXPECT_THAT(error_of(data), HasSubstr("for row 9; scales are finite"));
  }
  for (const int16_t value : {int16_t{-10}, int16_t{9}}) {
    auto data = good;
    data.zeros[11] = value;
    EXPECT_THAT(error_of(data),
                HasSubstr(fmt::format("a zero point of {} for row 11; those of 4 bits are within -9 and 8", value)));
  }
  auto data = good;
  data.scales[3] = 3e38f;
  data.zeros[3] = 8;
  EXPECT_THAT(error_of(data), HasSubstr("for row 3, whose product no float holds"));
  auto codes = matrix(4, 64, {.codebook = Codebook::kE2M1});
  for (const int value : {-1, 16}) {
    codes.q[65] = static_cast<int8_t>(value);
    EXPECT_THAT(error_of(codes), HasSubstr(fmt::format("part 0 has {} in row 1; integers of 4 bits are within 0 and 15", value)));
  }
}

}  // namespace
}  // namespace choral::kernels
