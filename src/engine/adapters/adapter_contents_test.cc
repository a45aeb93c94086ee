#include "engine/adapters/adapter_contents.h"

#include <gmock/gmock.h>

#include "engine/adapters/small_adapters_test.h"
#include "lora/peft/peft_helper.h"
#include "platform/cpu_context_test.h"

namespace choral::engine {
namespace {

using lora::AdapterId;
using ::testing::ElementsAre;

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
  std::vector<AdapterId> review() {
    std::vector<AdapterId> seen;
    contents_.review([&](const AdapterContent& content) { seen.push_back(content.id); });
    return seen;
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
  auto content = contents_.add(*weights);
  auto one = version(content), two = version(content);
  const auto stays = version(contents_.add(*packed(2)));
  const AdapterId id = content->id, other = stays->content->id;
  content = nullptr;
  one = nullptr;
  EXPECT_THAT(review(), ElementsAre(id, other));
  EXPECT_EQ(contents_.at(id).versions.size(), 1u);
  two = nullptr;
  EXPECT_EQ(contents_.size(), 2u);
  EXPECT_THAT(review(), ElementsAre(id, other)) << "shown once more, without versions";
  EXPECT_THAT(review(), ElementsAre(other));
  EXPECT_EQ(contents_.find(weights->digest()), nullptr);
  EXPECT_NE(contents_.add(*weights)->id, id) << "an id is not used twice";
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
