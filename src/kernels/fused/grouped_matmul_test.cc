#include "kernels/fused/grouped_matmul.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kernels/gemm/gemm_float.h"
#include "kernels/gemm/gemm_quant.h"
#include "kernels/gemm/gemm_quant_test_data.h"
#include "kernels/ref/gemm.h"

namespace choral::kernels {
namespace {

constexpr int64_t kN = 40, kK = 96;

class GroupedMatmulTest : public testing::TestWithParam<CpuLevel> {
 protected:
  Context ctx() { return {pool_, GetParam(), arena_}; }

  ThreadPool pool_{2};
  Arena arena_;
};
INSTANTIATE_TEST_SUITE_P(Levels, GroupedMatmulTest, testing::ValuesIn(usable_cpu_levels()),
                         [](const auto& tested) { return std::string(cpu_level_name(tested.param)); });

TEST(RowGroupsTest, BothWaysOfSayingGroups) {
  const std::vector<int64_t> counts{0, 3, 0, 0, 2, 1, 0}, ends{0, 3, 3, 3, 5, 6, 6};
  for (const RowGroups& groups : {RowGroups(GroupCounts{counts}), RowGroups(GroupEnds{ends})}) {
    EXPECT_EQ(groups.size(), 7);
    EXPECT_TRUE(groups.covers(6));
    EXPECT_FALSE(groups.covers(5));
    EXPECT_FALSE(groups.covers(7));
    const int64_t expected[] = {1, 1, 1, 4, 4, 5};
    for (int64_t t = 0; t < 6; ++t) EXPECT_EQ(groups.group_of(t), expected[t]) << t;
  }
  const std::vector<int64_t> negative{3, -1, 4}, backwards{3, 2, 6};
  EXPECT_FALSE(RowGroups(GroupCounts{negative}).covers(6));
  EXPECT_FALSE(RowGroups(GroupEnds{backwards}).covers(6));
  EXPECT_TRUE(RowGroups(GroupCounts{}).covers(0));
}

TEST_P(GroupedMatmulTest, EachGroupMeetsItsOwnMatrix) {
  const std::vector<int64_t> counts{2, 0, 1, 130, 0}, ends{2, 2, 3, 133, 133};
  const int64_t rows = 133;
  const auto x = gaussian(rows * kK, 1);
  std::vector<std::vector<float>> w;
  std::vector<std::unique_ptr<PackedMatrix>> packed;
  std::vector<const PackedMatrix*> weights;
  for (uint32_t g = 0; g < 5; ++g) {
    w.push_back(gaussian(kN * kK, 10 + g));
    const WeightRows part{{reinterpret_cast<const std::byte*>(w.back().data()), DType::kF32, choral::Shape{kN, kK}, kCpuDevice}};
    packed.push_back(*pack_float({&part, 1}, DType::kF32, pool_));
    weights.push_back(packed.back().get());
  }
  weights[4] = nullptr;  // an empty group needs none
  std::vector<float> by_counts(rows * kN), by_ends(rows * kN);
  grouped_matmul(ctx(), {x.data(), rows, kK}, GroupCounts{counts}, weights, {by_counts.data(), rows, kN});
  grouped_matmul(ctx(), {x.data(), rows, kK}, GroupEnds{ends}, weights, {by_ends.data(), rows, kN});
  EXPECT_EQ(by_counts, by_ends);
  const auto step = GetParam() == CpuLevel::kBase ? ref::Step::kApart : ref::Step::kFused;
  int64_t begin = 0;
  for (size_t g = 0; g < 5; ++g) {
    if (counts[g] == 0) continue;
    std::vector<float> expected(counts[g] * kN);
    ref::gemm_in_order({x.data() + begin * kK, counts[g], kK}, {w[g].data(), kN, kK}, step, {expected.data(), counts[g], kN});
    EXPECT_EQ(std::memcmp(by_counts.data() + begin * kN, expected.data(), expected.size() * sizeof(float)), 0) << "group " << g;
    begin += counts[g];
  }
}

TEST_P(GroupedMatmulTest, RowsQuantisedBeforeGiveTheSameBits) {
  const std::vector<int64_t> ends{1, 1, 120};
  const auto x = gaussian(120 * 256, 2);
  for (const DType type : {DType::kQ4_0, DType::kQ6_K}) {
    std::vector<std::unique_ptr<PackedMatrix>> packed;
    std::vector<const PackedMatrix*> weights;
    for (uint32_t g = 0; g < 3; ++g) {
      const auto data = random_quant_matrix(type, kN, 256, g);
      const WeightRows part{data.view()};
      packed.push_back(*pack_quantised({&part, 1}, pool_));
      weights.push_back(packed.back().get());
    }
    std::vector<float> y(120 * kN), expected(y.size());
    grouped_matmul(ctx(), {x.data(), 120, 256}, GroupEnds{ends}, weights, {expected.data(), 120, kN});
    const QuantisedRows rows(arena_, *weights[0]->quantised_input(GetParam()), 120, 256);
    quantise_rows(ctx(), {x.data(), 120, 256}, rows);
    grouped_matmul_quantised(ctx(), rows, GroupEnds{ends}, weights, {y.data(), 120, kN});
    EXPECT_EQ(y, expected);
  }
}

}  // namespace
}  // namespace choral::kernels
