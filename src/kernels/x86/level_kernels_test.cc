// What runs at each level of x86, by the names that people are told.
#include <gtest/gtest.h>

#include "kernels/gemm/gemm_float_kernels.h"
#include "kernels/gemm/gemm_quant_kernel.h"
#include "kernels/gemm/int8/int8_kernels.h"
#include "kernels/gemm/tile_product.h"

namespace choral::kernels {
namespace {

struct Names {
  CpuLevel level;
  const char *floats, *blocks, *int8_of_one_row, *int8_of_many;
};
constexpr Names kNames[] = {
    {CpuLevel::kAvx2, "avx2 fma", "avx2 vpmaddubsw", "avx2 vpmaddwd", "avx2 vpmaddwd"},
    {CpuLevel::kAvxVnni, "avx2 fma", "avx vnni", "avx vnni", "avx vnni"},
    {CpuLevel::kAvx512, "avx512 fma", "avx512 vpmaddubsw", "avx512 vpmaddwd", "avx512 vpmaddwd"},
    {CpuLevel::kVnni, "avx512 fma", "avx512 vnni", "avx512 vnni", "avx512 vnni"},
    {CpuLevel::kAmx, "avx512 fma", "avx512 vnni", "avx512 vnni", "amx tiles, avx512 vnni"},
};

TEST(LevelKernels, NamesSayWhatRuns) {
  for (const CpuLevel level : {CpuLevel::kVnni, CpuLevel::kAmx}) {
    EXPECT_EQ(&float_kernels(level), &float_kernels(CpuLevel::kAvx512));
  }
  for (const Names& wanted : kNames) {
    EXPECT_EQ(float_kernels(wanted.level).name, wanted.floats);
    EXPECT_EQ(quant_kernel({4, QuantScales::kD}, wanted.level).name, wanted.blocks);
    EXPECT_EQ(int8_kernels(wanted.level, 1).name, wanted.int8_of_one_row);
    EXPECT_EQ(int8_kernels(wanted.level, 1000).name, wanted.int8_of_many);
    const auto* tiles = bf16_tile_product(wanted.level);
    EXPECT_TRUE(tiles == nullptr || (wanted.level == CpuLevel::kAmx && tiles->name == "amx tiles"));
  }
}

}  // namespace
}  // namespace choral::kernels
