// The tile unit's sums are the oracle's, for every height of its tiles and every rest of k.
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/gemm/int8/gemm_int8_test_data.h"
#include "kernels/gemm/int8/int8_kernels.h"

namespace choral::kernels {
namespace {

TEST(Int8TileUnit, BitsEqualTheOracle) {
  if (cpu_level() < CpuLevel::kAmx) GTEST_SKIP() << "this CPU, or its cap, has no tile unit";
  ThreadPool pool(2);
  Arena scratch;
  const int64_t rows = 70, n = 53;
  for (const int64_t group : {0, 64, 128}) {
    for (const int64_t k : {64, 127, 128, 193, 1024, 1100, 2300}) {
      for (const Int8Fill fill : kInt8Fills) {
        const auto data = int8_matrix(n, k, group, fill, 1);
        const Int8Part part = data.part();
        const auto w = pack_int8({&part, 1}, {.group_size = group}, pool);
        ASSERT_TRUE(w.ok());
        const auto q = int8_values(rows * k, fill == Int8Fill::kLargest ? Int8Fill::kLeast : fill, 2);
        std::vector<float> scales(static_cast<size_t>(rows)), expected(static_cast<size_t>(rows * n));
        for (size_t i = 0; i < scales.size(); ++i) scales[i] = 0.01f + 0.001f * static_cast<float>(i);
        ref::int8_gemm({q.data(), rows, k}, scales,
                       {{data.w.data(), n, k}, group == 0 ? k : group, {data.scales.data(), n, data.groups()}},
                       {expected.data(), rows, n});
        for (const int64_t m : {7, 15, 16, 17, 31, 32, 33, 70}) {
          std::vector<float> y(static_cast<size_t>(m * n));
          const Arena::Mark mark(scratch);
          (*w)->multiply_quantised({pool, CpuLevel::kAmx, scratch}, int8_rows_for(**w, CpuLevel::kAmx, q, scales, m, scratch), {},
                                   {y.data(), m, n});
          ASSERT_EQ(std::memcmp(y.data(), expected.data(), y.size() * sizeof(float)), 0)
              << "group " << group << ", k " << k << ", m " << m << ", fill " << static_cast<int>(fill);
        }
      }
    }
  }
}

}  // namespace
}  // namespace choral::kernels
