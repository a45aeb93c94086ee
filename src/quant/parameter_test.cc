#include "quant/parameter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quant/weights_test.h"

namespace choral::quant {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::StoredWeights;

// Two shards of a weight, one of a bias.
ParameterSet two_parameters() {
  ParameterSet set;
  set.add("weight", StoredAs::kFloat).shards = {{"q.weight", {2, 3}, {}}, {"k.weight", {1, 3}, {}}};
  set.add("bias", StoredAs::kFloat).shards = {{"q.bias", {2}, {}}};
  return set;
}

StoredWeights stored_weights() {
  StoredWeights source;
  source.add("q.weight", DType::kF32, {2, 3}, {1, 2, 3, 4, 5, 6});
  source.add("k.weight", DType::kF16, {1, 3}, {7, 8, 9});
  source.add("q.bias", DType::kF32, {2}, {10, 11});
  return source;
}

TEST(ParameterSet, KnowsWhatWasRegistered) {
  auto set = two_parameters();
  EXPECT_TRUE(set.contains("bias"));
  EXPECT_FALSE(set.contains("weight_scale"));
  EXPECT_EQ(set.get("weight").shards.size(), 2u);
  EXPECT_DEATH(set.get("weight_scale"), "never registered");
}

TEST(ParameterSet, EveryShardIsLoadedInItsOwnType) {
  auto set = two_parameters();
  auto source = stored_weights();
  ASSERT_TRUE(set.weight_loader(source).ok());
  EXPECT_EQ(set.get("weight").shards[0].tensor.view.dtype, DType::kF32);
  EXPECT_EQ(set.get("weight").shards[1].tensor.view.dtype, DType::kF16);
  EXPECT_EQ(set.get("bias").shards[0].tensor.view.shape, Shape{2});
}

TEST(ParameterSet, TheFirstMissingShardIsNamed) {
  auto set = two_parameters();
  StoredWeights source;
  source.add("q.weight", DType::kF32, {2, 3}, {1, 2, 3, 4, 5, 6});
  const Status status = set.weight_loader(source);
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("k.weight"));
}

TEST(ParameterSet, AShardOfAnotherShapeIsAnError) {
  auto set = two_parameters();
  auto source = stored_weights();
  source.add("k.weight", DType::kF16, {3, 1}, {7, 8, 9});
  const Status status = set.weight_loader(source);
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("tensor k.weight has shape [3, 1], not [1, 3]"));
}

TEST(ParameterSet, AShardOfAnotherTypeIsAnErrorThatNamesIt) {
  ParameterSet set;
  set.add("weight", StoredAs::kFloat).shards = {{"q.weight", {1, 32}, {}}};
  StoredWeights source;
  const Tensor stored = *Tensor::allocate(DType::kI8, {1, 32});
  source.add("q.weight", stored.view());
  const Status status = set.weight_loader(source);
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("tensor q.weight is stored as int8, a float type is wanted"));
}

TEST(ParameterSet, ReleaseGivesEveryShardBackAndDropsItsView) {
  auto set = two_parameters();
  auto source = stored_weights();
  ASSERT_TRUE(set.weight_loader(source).ok());
  EXPECT_THAT(source.released(), IsEmpty());  // the views are read until the method has packed them
  set.release(source);
  EXPECT_THAT(source.released(), ElementsAre("q.weight", "k.weight", "q.bias"));
  for (const auto* name : {"weight", "bias"}) {
    for (const auto& shard : set.get(name).shards) EXPECT_EQ(shard.tensor.view.data, nullptr) << shard.name;
  }
}

}  // namespace
}  // namespace choral::quant
