#include "engine/adapters/request_voices.h"

#include <gmock/gmock.h>

#include <set>

namespace choral::engine {
namespace {

using lora::AdapterId;
using lora::AdapterKey;
using ::testing::ElementsAre;
using Terms = std::vector<RequestVoice::Term>;

class RequestVoicesTest : public ::testing::Test {
 protected:
  static std::shared_ptr<AdapterContent> content(int32_t id) {
    auto made = std::make_shared<AdapterContent>();
    made->id = AdapterId{id};
    return made;
  }

  std::shared_ptr<AdapterContent> a_ = content(1), b_ = content(2);
  RequestVoices voices_;
};

TEST_F(RequestVoicesTest, EqualTermsAreOneVoice) {
  const Terms mix{{a_, 1.0F}, {b_, 0.5F}};
  RequestVoice& voice = voices_.join(mix);
  EXPECT_EQ(&voices_.join(mix), &voice);
  EXPECT_EQ(voice.requests, 2);
  EXPECT_THAT(voice.adapters, ElementsAre(AdapterId{1}, AdapterId{2}));
}

TEST_F(RequestVoicesTest, OtherFactorsCompanyOrOrderAreAnotherVoice) {
  const Terms all[] = {
      {{a_, 1.0F}}, {{a_, 0.5F}}, {{a_, 1.0F}, {a_, 0.5F}}, {{b_, 1.0F}}, {{a_, 1.0F}, {b_, 0.5F}}, {{b_, 0.5F}, {a_, 1.0F}}};
  std::set<AdapterKey> keys;
  for (const Terms& terms : all) EXPECT_TRUE(keys.insert(voices_.join(terms).key).second);
  EXPECT_FALSE(keys.contains(lora::kBaseKey));
  EXPECT_EQ(voices_.size(), std::size(all));
}

TEST_F(RequestVoicesTest, AnAdapterNamedTwiceActsTwiceAndIsOne) {
  const RequestVoice& voice = voices_.join({{a_, 0.75F}, {a_, 0.25F}});
  EXPECT_EQ(voice.terms.size(), 2u);
  EXPECT_THAT(voice.adapters, ElementsAre(AdapterId{1}));
}

TEST_F(RequestVoicesTest, AVoiceEndsWithItsLastRequestAndLetsItsContentsGo) {
  RequestVoice& voice = voices_.join({{a_, 1.0F}});
  voices_.join({{a_, 1.0F}});
  const std::weak_ptr<AdapterContent> content = a_;
  a_ = nullptr;
  voices_.leave(voice);
  EXPECT_EQ(voices_.size(), 1u);
  EXPECT_FALSE(content.expired());
  voices_.leave(voice);
  EXPECT_EQ(voices_.size(), 0u);
  EXPECT_TRUE(content.expired());
}

// Each request may bring a factor that was never seen.
TEST_F(RequestVoicesTest, KeysAreUsedAgain) {
  RequestVoice& other = voices_.join({{b_, 1.0F}});
  std::set<AdapterKey> keys;
  for (int i = 0; i < 50; ++i) {
    RequestVoice& voice = voices_.join({{a_, 1.0F + 0.01F * static_cast<float>(i)}});
    EXPECT_NE(voice.key, other.key);
    keys.insert(voice.key);
    voices_.leave(voice);
  }
  EXPECT_EQ(keys.size(), 1u);
}

}  // namespace
}  // namespace choral::engine
