// What pack_quantised() accepts, refuses and keeps.
#include "kernels/gemm/gemm_quant.h"
#include "kernels/gemm/packed_matrix_test.h"
#include "kernels/quant/dequantise.h"

namespace choral::kernels {
namespace {

using testing::HasSubstr;

std::unique_ptr<PackedMatrix> pack(const QuantMatrixData& data, Planes planes = Planes::kTwo) {
  ThreadPool pool(1);
  const WeightRows part{data.view()};
  return packed_or_die(pack_quantised({&part, 1}, pool, planes));
}

TEST(GemmQuantPack, ReadRowEqualsTheOtherDecoderBitForBit) {
  for (const DType type : kQuantTypes) {
    for (const int64_t k : {256, 1536, 96}) {
      if (k % facts(type).block_elements != 0) continue;
      const auto data = random_quant_matrix(type, 37, k, 91);
      const auto w = pack(data);
      std::vector<float> expected(k), got(k);
      for (int64_t row = 0; row < 37; ++row) {
        dequantise_row(type, data.view().row(row), k, expected.data());
        ASSERT_TRUE(w->read_row(row, got).ok());
        ASSERT_TRUE(same_bits(got, expected)) << dtype_name(type) << " " << row;
      }
    }
  }
}

TEST(GemmQuantPack, WrongPartsAreRefusedByName) {
  ThreadPool pool(1);
  const auto error = [&](const std::vector<WeightRows>& parts) { return refusal(pack_quantised(parts, pool)); };
  const auto q4 = random_quant_matrix(DType::kQ4_0, 4, 64, 1), q8 = random_quant_matrix(DType::kQ8_0, 4, 64, 1),
             wide = random_quant_matrix(DType::kQ4_0, 4, 96, 1);
  const std::vector<float> plain(64);
  const TensorView f32{reinterpret_cast<const std::byte*>(plain.data()), DType::kF32, Shape{1, 64}, kCpuDevice};
  const std::vector<int32_t> beyond{4}, below{-1};
  EXPECT_THAT(error({}), HasSubstr("at least one part"));
  EXPECT_THAT(error({{f32}}), HasSubstr("float32"));
  EXPECT_THAT(error({{q4.view()}, {q8.view()}}), HasSubstr("part 1 of a fused weight is q8_0, part 0 is q4_0"));
  EXPECT_THAT(error({{q4.view()}, {wide.view()}}), HasSubstr("96 inputs"));
  EXPECT_THAT(error({{q4.view(), beyond}}), HasSubstr("row 4"));
  EXPECT_THAT(error({{q4.view(), below}}), HasSubstr("row -1"));
  TensorView broken = q4.view();
  broken.shape = Shape{4, 40};
  EXPECT_THAT(error({{broken}}), HasSubstr("block of 32"));
  broken.shape = Shape{0, 64};
  EXPECT_THAT(error({{broken}}), HasSubstr("empty"));
  broken = q4.view();
  broken.data = nullptr;
  EXPECT_THAT(error({{broken}}), HasSubstr("host memory"));
}

TEST(GemmQuantPack, NamesSayWhatRuns) {
  const auto w = pack(random_quant_matrix(DType::kQ4_0, 4, 64, 1));
  EXPECT_EQ(w->kernel_name(CpuLevel::kBase), "q4_0 x 2 int8, scalar");
  const auto name = [](DType type, Planes planes) {
    return pack(random_quant_matrix(type, 4, 256, 1), planes)->kernel_name(CpuLevel::kBase);
  };
  EXPECT_EQ(name(DType::kIQ4_XS, Planes::kOne), "iq4_xs x 1 int8, scalar");
  EXPECT_EQ(name(DType::kMXFP4, Planes::kOneScale), "mxfp4 x dynamic int8, scalar");
}

}  // namespace
}  // namespace choral::kernels
