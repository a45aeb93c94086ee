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

TEST(ParameterSet, AShardMayHaveOtherShapes) {
  ParameterSet set;
  set.add("weight_scale", StoredAs::kFloat).shards = {{"q.weight_scale", {3, 1}, {}, {Shape{3}, Shape{}}}};
  auto& shard = set.get("weight_scale").shards.front();
  for (const Shape& shape : {Shape{3, 1}, Shape{3}, Shape{}}) {
    StoredWeights source;
    source.add("q.weight_scale", DType::kF32, shape, std::vector<float>(static_cast<size_t>(shape.elements()), 1.0f));
    ASSERT_TRUE(set.weight_loader(source).ok());
    EXPECT_EQ(shard.tensor.view.shape, shape);
  }
  StoredWeights source;
  source.add("q.weight_scale", DType::kF32, {4}, {1, 2, 3, 4});
  EXPECT_THAT(set.weight_loader(source).message(), HasSubstr("tensor q.weight_scale has shape [4], not [3, 1]"));
}

TEST(ParameterSet, AnOptionalShardMayBeAbsentButNotWrong) {
  ParameterSet set;
  set.add("input_scale", StoredAs::kFloat, Presence::kOptional).shards = {{"q.input_scale", {1}, {}}, {"k.input_scale", {1}, {}}};
  StoredWeights source;
  source.add("k.input_scale", DType::kF32, {1}, {2});
  ASSERT_TRUE(set.weight_loader(source).ok());
  EXPECT_FALSE(set.get("input_scale").shards[0].loaded());
  EXPECT_TRUE(set.get("input_scale").shards[1].loaded());
  set.release(source);
  EXPECT_THAT(source.released(), ElementsAre("k.input_scale"));
  source.add("q.input_scale", DType::kF32, {2}, {1, 2});
  EXPECT_EQ(set.weight_loader(source).code(), Code::kCorrupt);
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
