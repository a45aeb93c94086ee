#include "engine/adapters/adapter_contents.h"

#include <gmock/gmock.h>

#include "engine/adapters/small_adapters_test.h"
#include "lora/peft/peft_helper.h"
#include "platform/cpu_context_test.h"

namespace choral::engine {
namespace {

using lora::AdapterId;

class AdapterContentsTest : public ::testing::Test {
 protected:
  static std::shared_ptr<const lora::PackedAdapter> packed(float value) {
    const testing::TempDir folder;
    lora::testing::AdapterBuilder builder;
    builder.query_and_value().tensors.front().values.front() = value;
    const auto model = lora::testing::load(folder.path(), builder, lora::testing::config_json());
    CHORAL_CHECK(model.ok(), model.status().message());
    platform::testing::CpuContext cpu(1);
    auto made = lora::PackedAdapter::pack(*cpu, *model, lora::testing::small_targets(), {});
    CHORAL_CHECK(made.ok(), made.status().message());
    return std::move(*made);
  }
  // A version that holds it.
  std::shared_ptr<AdapterVersion> version(const std::shared_ptr<AdapterContent>& content) {
    auto made = std::make_shared<AdapterVersion>(VersionId{++versions_}, AdapterSpec{"a", "/adapters/a"});
    made->content = content;
    content->versions.push_back(made);
    return made;
  }
  AdapterContents contents_;
  int32_t versions_ = 0;
};

TEST_F(AdapterContentsTest, EqualContentsAreOne) {
  const auto first = packed(1), again = packed(1), other = packed(2);
  EXPECT_EQ(contents_.find(first->digest()), nullptr);
  const auto content = contents_.add(*first);
  EXPECT_EQ(contents_.find(again->digest()), content);
  EXPECT_EQ(contents_.find(other->digest()), nullptr);
  EXPECT_NE(contents_.add(*other)->id, content->id);
  EXPECT_EQ(&contents_.at(content->id), content.get());
  EXPECT_EQ(content->packed, nullptr) << "whether it may be in memory is not decided here";
}

TEST_F(AdapterContentsTest, AContentEndsWithItsLastVersion) {
  const auto weights = packed(1);
  const auto content = contents_.add(*weights);
  auto one = version(content), two = version(content);
  const auto stays = version(contents_.add(*packed(2)));
  const AdapterId id = content->id;
  one = nullptr;
  EXPECT_TRUE(contents_.review(*content));
  EXPECT_EQ(content->versions.size(), 1u);
  two = nullptr;
  EXPECT_EQ(contents_.size(), 2u);
  EXPECT_FALSE(contents_.review(*content));
  EXPECT_EQ(contents_.size(), 1u);
  EXPECT_EQ(contents_.find(weights->digest()), nullptr);
  EXPECT_NE(contents_.add(*weights)->id, id) << "an id is not used twice";
}

// Whoever goes through those that are told of goes through no others.
TEST_F(AdapterContentsTest, VersionsTellOfTheirContentsAsTheyEnd) {
  const auto ends = std::make_shared<VersionEnds>();
  const auto ending = [&](const std::shared_ptr<AdapterContent>& content) {
    AdapterVersion made(VersionId{++versions_}, AdapterSpec{"a", "/adapters/a"}, "", ends);
    made.content = content;
  };
  const auto one = contents_.add(*packed(1)), two = contents_.add(*packed(2));
  contents_.add(*packed(3));
  ending(nullptr);
  EXPECT_EQ(ends->take(), nullptr);
  ending(one);
  ending(two);
  ending(one);
  EXPECT_EQ(ends->count(), 4u);
  EXPECT_EQ(ends->take(), two);
  EXPECT_EQ(ends->take(), one) << "each once";
  EXPECT_EQ(ends->take(), nullptr);
  ending(one);
  EXPECT_EQ(ends->take(), one);
}

TEST_F(AdapterContentsTest, WhatIsToldOfItsPlaceIsToldUnderAllItsNames) {
  ShownInfo first{AdapterInfo{}}, second{AdapterInfo{}};
  const auto place = std::make_shared<ContentPlace>();
  first.share(place);
  place->set(AdapterState::kResident, 2);
  second.share(place);
  for (const auto* shown : {&first, &second}) {
    EXPECT_EQ(shown->get().state, AdapterState::kResident);
    EXPECT_EQ(shown->get().in_use, 2);
  }
  second.change([](AdapterInfo& info) { info.state = AdapterState::kLoading; });
  EXPECT_EQ(second.get().state, AdapterState::kLoading) << "said last";
  EXPECT_EQ(first.get().state, AdapterState::kResident);
  place->set(AdapterState::kOnDisk, 0);
  for (const auto* shown : {&first, &second}) EXPECT_EQ(shown->get().state, AdapterState::kOnDisk);
  second.change([](AdapterInfo& info) { ++info.requests; });
  EXPECT_EQ(second.get().state, AdapterState::kOnDisk);
}

TEST_F(AdapterContentsTest, IsPinnedByAnyVersionThatLives) {
  const auto content = contents_.add(*packed(1));
  auto one = version(content), two = version(content);
  EXPECT_FALSE(content->is_pinned());
  two->pinned = true;
  EXPECT_TRUE(content->is_pinned());
  two = nullptr;
  EXPECT_FALSE(content->is_pinned());
}

}  // namespace
}  // namespace choral::engine
