// Wishes to keep adapters in memory, over versions without files: loads end when the test says so.
#include "engine/adapters/adapter_pins.h"

#include <gmock/gmock.h>

namespace choral::engine {
namespace {

using lora::AdapterId;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Room for 100 bytes, of which 75 may be pinned.
class AdapterPinsTest : public ::testing::Test {
 protected:
  std::shared_ptr<AdapterVersion> unknown(const std::string& name) {
    return std::make_shared<AdapterVersion>(VersionId{++versions_}, AdapterSpec{name, "/adapters/" + name});
  }
  std::shared_ptr<AdapterContent> content(int64_t size_bytes) {
    auto made = std::make_shared<AdapterContent>();
    made->id = AdapterId{++contents_};
    memory_.add(made->id, size_bytes);
    return made;
  }
  static void hold(const std::shared_ptr<AdapterVersion>& version, const std::shared_ptr<AdapterContent>& content) {
    version->content = content;
    content->versions.push_back(version);
  }
  std::shared_ptr<AdapterVersion> in_memory(const std::string& name, int64_t size_bytes) {
    const auto version = unknown(name);
    hold(version, content(size_bytes));
    EXPECT_TRUE(memory_.arrive(version->content->id));
    return version;
  }
  void wish(const std::shared_ptr<AdapterVersion>& version, bool pinned) {
    pins_.wishes().push_back({.version = version, .pinned = pinned, .failures_before = version->failures});
  }
  // The names whose loads are asked for, and those that are answered.
  void settle() {
    loads_.clear();
    answered_.clear();
    pins_.settle([this](const std::shared_ptr<AdapterVersion>& version) { loads_.push_back(version->request.lora_name); },
                 [this](const AdapterPins::Wish& wish, const Status& status) {
                   answered_.push_back(wish.version->request.lora_name);
                   last_ = status;
                 });
  }
  bool is_pinned(const AdapterContent& content) const { return memory_.book().at(content.id).pinned; }

  sched::AdapterMemory memory_{100};
  AdapterPins pins_{memory_};
  std::vector<std::string> loads_, answered_;
  Status last_;
  int32_t versions_ = 0, contents_ = 0;
};

TEST_F(AdapterPinsTest, WhatIsInMemoryIsPinnedAtOnce) {
  const auto a = in_memory("a", 40);
  wish(a, true);
  settle();
  EXPECT_THAT(answered_, ElementsAre("a"));
  EXPECT_TRUE(last_.ok());
  EXPECT_TRUE(a->pinned);
  EXPECT_TRUE(is_pinned(*a->content));
  wish(a, false);
  settle();
  EXPECT_FALSE(a->pinned);
  EXPECT_FALSE(is_pinned(*a->content));
}

TEST_F(AdapterPinsTest, WhatIsNotIsLoadedOnceAndPinnedThen) {
  const auto a = unknown("a");
  wish(a, true);
  settle();
  EXPECT_THAT(loads_, ElementsAre("a"));
  EXPECT_TRUE(a->loading);
  settle();
  EXPECT_THAT(loads_, IsEmpty());
  EXPECT_THAT(answered_, IsEmpty());
  a->loading = false;
  hold(a, content(40));
  EXPECT_TRUE(memory_.arrive(a->content->id));
  settle();
  EXPECT_THAT(answered_, ElementsAre("a"));
  EXPECT_TRUE(is_pinned(*a->content));
}

TEST_F(AdapterPinsTest, WhyItsLoadFailedIsTheAnswerAndOnlyItsOwn) {
  const auto a = unknown("a");
  a->failures = 1;
  a->failure = corrupt("as before");
  wish(a, true);
  settle();
  EXPECT_THAT(loads_, ElementsAre("a")) << "a new wish is a new try";
  a->loading = false;
  a->failures = 2;
  a->failure = not_found("its folder is gone");
  settle();
  EXPECT_THAT(answered_, ElementsAre("a"));
  EXPECT_EQ(last_.code(), Code::kNotFound);
  EXPECT_THAT(last_.message(), HasSubstr("its folder is gone"));
  EXPECT_FALSE(a->pinned);
}

TEST_F(AdapterPinsTest, AnUnpinWaitsForThePinBeforeIt) {
  const auto a = unknown("a"), b = in_memory("b", 10);
  wish(a, true);
  wish(a, false);
  wish(b, true);
  settle();
  EXPECT_THAT(answered_, ElementsAre("b")) << "which waits for nobody";
  a->loading = false;
  hold(a, content(10));
  EXPECT_TRUE(memory_.arrive(a->content->id));
  settle();
  EXPECT_THAT(answered_, ElementsAre("a", "a"));
  EXPECT_FALSE(a->pinned);
  EXPECT_FALSE(is_pinned(*a->content));
}

TEST_F(AdapterPinsTest, ALoadForARequestIsWaitedForToo) {
  const auto a = unknown("a");
  hold(a, content(40));
  const AdapterId id = a->content->id;
  sched::Voice& voice = memory_.join({{id, 1.0F}});
  EXPECT_EQ(memory_.acquire(voice), sched::Residency::kLoading);
  wish(a, true);
  settle();
  EXPECT_THAT(loads_, IsEmpty());
  EXPECT_THAT(answered_, IsEmpty());
  EXPECT_TRUE(memory_.arrive(id));
  settle();
  EXPECT_THAT(answered_, ElementsAre("a"));
  EXPECT_TRUE(is_pinned(*a->content));
}

TEST_F(AdapterPinsTest, EqualContentsStayPinnedWhileOneNameIs) {
  const auto a = in_memory("a", 40);
  auto same = unknown("same");
  hold(same, a->content);
  wish(a, true);
  wish(same, true);
  settle();
  EXPECT_EQ(memory_.book().pinned().bytes, 40);
  wish(a, false);
  settle();
  EXPECT_TRUE(is_pinned(*a->content));
  same = nullptr;  // unloaded: its pin goes with it
  pins_.review(*a->content);
  EXPECT_FALSE(is_pinned(*a->content));
}

TEST_F(AdapterPinsTest, WhatDoesNotFitIsRefusedWithItsReason) {
  const auto a = in_memory("a", 40), b = in_memory("b", 40);
  wish(a, true);
  wish(b, true);
  settle();
  EXPECT_EQ(last_.code(), Code::kResourceExhausted);
  EXPECT_THAT(last_.message(), AllOf(HasSubstr("'b' needs 40 bytes"), HasSubstr("75"), HasSubstr("--adapter-memory")));
  EXPECT_FALSE(b->pinned);

  const auto huge = unknown("huge"), large = unknown("large");
  hold(huge, content(101));
  hold(large, content(80));
  wish(huge, true);
  settle();
  EXPECT_EQ(last_.code(), Code::kTooLarge);
  wish(large, true);
  settle();
  EXPECT_EQ(last_.code(), Code::kResourceExhausted) << "'a' is in its way";
  EXPECT_THAT(last_.message(), HasSubstr("in use or pinned"));
  EXPECT_THAT(loads_, IsEmpty());
}

TEST_F(AdapterPinsTest, WhatCameAndLeftIsNotLoadedAgain) {
  const auto a = unknown("a");
  wish(a, true);
  settle();
  a->loading = false;
  hold(a, content(40));  // read, and dropped for another's sake
  settle();
  EXPECT_EQ(last_.code(), Code::kUnavailable);
  EXPECT_THAT(last_.message(), HasSubstr("left memory before it could be pinned"));
  EXPECT_THAT(loads_, IsEmpty());
}

}  // namespace
}  // namespace choral::engine
