// A pin is the name's: what becomes of one whose files change while it is asked for. The engine's side goes on when the test
// says so, and the loader hands over one adapter at a time.
#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <thread>

#include "engine/adapters/adapter_executor_test.h"
#include "engine/adapters/adapter_residency.h"
#include "engine/adapters/registry_test.h"
#include "engine/adapters/small_adapters_test.h"

namespace choral::engine {
namespace {

using ::testing::HasSubstr;

class PinChangeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    registry_.set_wake([this] { ++woken_; });
    ASSERT_TRUE(registry_.load({"a", files_.write("a", 1)}, false).ok());
    residency_.take_changes();
    ASSERT_EQ(info().generation, 1);
  }
  void TearDown() override { registry_.set_wake({}); }

  AdapterInfo info() const { return registry_.list().front(); }
  void name_it() {
    const std::vector<AdapterUse> uses{{.name = "a"}};
    ASSERT_TRUE(registry_.resolve(uses).ok());
  }
  // Of another thread, until the engine has been told.
  std::future<Status> pin(bool pinned) {
    const int before = woken_;
    auto answer = std::async(std::launch::async, [this, pinned] { return registry_.pin("a", pinned); });
    while (woken_ == before) std::this_thread::yield();
    return answer;
  }
  // The engine goes on until the caller is answered and the files that came last are what the name stands for.
  Status answer_of(std::future<Status>& asked, int generation) {
    while (asked.wait_for(std::chrono::seconds(0)) != std::future_status::ready || info().generation < generation) go_on();
    for (int i = 0; i < 3; ++i) go_on();  // what the answer left to do
    return asked.get();
  }
  void go_on() {
    residency_.take_changes();
    std::this_thread::yield();
  }
  // One more adapter that the engine has not taken in, so that no other can be handed over.
  void hold_loader() { ASSERT_TRUE(registry_.load({"other", files_.write("other", 9)}, false).ok()); }

  int64_t size_of_one() const {
    const auto registry = make_registry(files_.targets());
    EXPECT_TRUE(registry->load({"probe", files_.write("probe", 1)}, false).ok());
    return registry->list().front().size_bytes;
  }

  SmallAdapters files_;
  AdapterExecutor executor_;
  const std::shared_ptr<AdapterRegistry> made_ =
      make_registry(files_.targets(), {.load = {}, .root = "", .budget_bytes = size_of_one()});
  AdapterRegistry& registry_ = *made_;
  AdapterResidency residency_{registry_, executor_, int64_t{1} << 30};
  std::atomic<int> woken_{0};
};

TEST_F(PinChangeTest, APinThatWaitedIsGrantedToWhatTheNameStandsForByThen) {
  auto asked = pin(true);
  files_.write("a", 2);
  name_it();
  while (info().generation < 2) std::this_thread::yield();
  const Status pinned = answer_of(asked, 2);
  EXPECT_TRUE(pinned.ok()) << pinned.to_string();
  EXPECT_EQ(info().generation, 2);
  EXPECT_TRUE(info().pinned) << "the older version has the pin";
  EXPECT_EQ(residency_.content_count(), 1U) << "the older one stays in memory";
}

TEST_F(PinChangeTest, AnUnpinHoldsForWhatComesToo) {
  auto first = pin(true);
  ASSERT_TRUE(answer_of(first, 1).ok());
  hold_loader();
  files_.write("a", 2);
  name_it();
  auto asked = pin(false);
  ASSERT_EQ(info().generation, 1) << "the new files came too early";
  EXPECT_TRUE(answer_of(asked, 2).ok());
  EXPECT_FALSE(info().pinned);
}

TEST_F(PinChangeTest, APinOfFilesThatCannotBeReadIsOfWhatTheNameKeeps) {
  hold_loader();
  files_.write("a", 2);
  std::filesystem::resize_file(files_.root() / "a" / "adapter_model.safetensors", 20);
  name_it();
  auto asked = pin(true);
  const Status pinned = answer_of(asked, 1);
  EXPECT_TRUE(pinned.ok()) << pinned.to_string();
  EXPECT_EQ(info().generation, 1);
  EXPECT_TRUE(info().pinned);
  EXPECT_THAT(info().error, HasSubstr("adapter_model.safetensors"));
}

TEST_F(PinChangeTest, APinGoesOverTwoChangesAtOnce) {
  auto first = pin(true);
  ASSERT_TRUE(answer_of(first, 1).ok());
  for (int generation = 2; generation <= 3; ++generation) {
    files_.write("a", generation);
    name_it();
    while (info().generation < generation) std::this_thread::yield();
    std::vector<LoadedAdapter> second;  // is gone before the engine could pin it
    if (generation == 2) registry_.take_loaded(second);
  }
  for (int i = 0; i < 3; ++i) go_on();
  EXPECT_EQ(info().generation, 3);
  EXPECT_TRUE(info().pinned);
}

TEST_F(PinChangeTest, APinOfANameThatIsUnloadedMeanwhileSaysSo) {
  auto asked = pin(true);
  ASSERT_TRUE(registry_.unload("a").ok());
  while (asked.wait_for(std::chrono::seconds(0)) != std::future_status::ready) go_on();
  const Status pinned = asked.get();
  EXPECT_EQ(pinned.code(), Code::kNotFound);
  EXPECT_THAT(pinned.message(), HasSubstr("'a' was unloaded meanwhile"));
}

}  // namespace
}  // namespace choral::engine
