#include "serve/adapters/root_watcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <thread>

#include "support/temp_dir.h"

namespace choral::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
namespace fs = std::filesystem;

constexpr const char* kWatchedConfig = R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]})";
constexpr auto kLong = std::chrono::seconds(60);

void add(const testing::TempDir& root, const std::string& name, const std::string& config = kWatchedConfig) {
  root.write(name + "/adapter_config.json", config);
  root.write(name + "/adapter_model.safetensors", "not looked at");
}

// A watcher, and what it told.
class Watched {
 public:
  explicit Watched(const std::string& root, double quiet_s = 0.05) {
    auto made = RootWatcher::start({.root = root, .quiet_s = quiet_s}, [this](const RootChange& change) {
      const char* kind = change.kind == RootChange::Kind::kAppeared ? "+" : change.kind == RootChange::Kind::kChanged ? "~" : "-";
      const std::lock_guard lock(mutex_);
      told_.push_back(kind + change.name);
      wake_.notify_all();
    });
    CHORAL_CHECK(made.ok(), made.status().message());
    watcher_ = std::move(*made);
  }
  // Waits until it was told so much in all.
  std::vector<std::string> told(size_t count) {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, kLong, [&] { return told_.size() >= count; });
    return told_;
  }
  template <class Condition>
  bool comes(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + kLong;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    const auto adapters = watcher_->adapters();
    for (const auto& found : *adapters) out.push_back(found.name);
    return out;
  }
  RootWatcher& operator*() { return *watcher_; }
  RootWatcher* operator->() { return watcher_.get(); }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::string> told_;
  std::unique_ptr<RootWatcher> watcher_;  // goes first
};

TEST(RootWatcher, WhatIsThereAtTheStartIsListed) {
  const testing::TempDir root;
  add(root, "sql");
  add(root, "team/yoda");
  fs::create_directory(root / "empty");
  add(root, ".hidden");
  Watched watched(root.path());
  EXPECT_THAT(watched.names(), ElementsAre("sql", "team/yoda"));
  EXPECT_THAT(*watched->faults(), IsEmpty());
  EXPECT_EQ(watched->note(), "");
}

TEST(RootWatcher, FoldersComeChangeAndGo) {
  const testing::TempDir root;
  Watched watched(root.path());
  add(root, "sql");
  EXPECT_THAT(watched.told(1), ElementsAre("+sql"));
  add(root, "team/yoda");
  EXPECT_THAT(watched.told(2), ElementsAre("+sql", "+team/yoda"));
  EXPECT_THAT(watched.names(), ElementsAre("sql", "team/yoda"));
  root.write("sql/adapter_model.safetensors", "other weights");
  EXPECT_THAT(watched.told(3), ElementsAre("+sql", "+team/yoda", "~sql"));
  fs::remove_all(root / "team");
  EXPECT_THAT(watched.told(4), ElementsAre("+sql", "+team/yoda", "~sql", "-team/yoda"));
  EXPECT_THAT(watched.names(), ElementsAre("sql"));
}

TEST(RootWatcher, HalfACopyIsNotTold) {
  const testing::TempDir root;
  Watched watched(root.path());
  root.write("sql/adapter_model.safetensors", "weights come first");
  root.write("sql/adapter_config.json", "{");
  ASSERT_TRUE(watched.comes([&] { return !watched->faults()->empty(); })) << "the half was seen";
  EXPECT_THAT(watched.names(), IsEmpty());
  root.write("sql/adapter_config.json", kWatchedConfig);
  EXPECT_THAT(watched.told(1), ElementsAre("+sql"));
}

TEST(RootWatcher, WhatCannotBeHadHasAReason) {
  const testing::TempDir root, outside;
  add(outside, "secret");
  add(root, "good");
  add(root, "base");
  fs::create_directory_symlink(outside / "secret", root / "leak");
  fs::create_directory_symlink(root / "good", root / "alias");
  Watched watched(root.path());
  EXPECT_THAT(watched.names(), ElementsAre("alias", "good"));
  const auto faults = watched->faults();
  ASSERT_THAT(*faults, SizeIs(2));
  EXPECT_TRUE(faults->contains("base"));
  EXPECT_THAT(faults->at("leak").message(), HasSubstr("leads out of"));

  add(root, "broken", "{\"r\": ");
  EXPECT_TRUE(watched.comes([&] { return watched->faults()->size() == 3; }));
  EXPECT_THAT(watched.names(), ElementsAre("alias", "good"));
  add(root, "broken");
  EXPECT_THAT(watched.told(1), ElementsAre("+broken")) << "it was mended";
  EXPECT_THAT(*watched->faults(), SizeIs(2));
  add(root, "good", "{");
  EXPECT_TRUE(watched.comes([&] { return watched->faults()->size() >= 3; }));
  EXPECT_THAT(watched.names(), ElementsAre("alias", "broken", "good")) << "what it held before may still be served";
}

TEST(RootWatcher, AFloodOfEventsLosesNothing) {
  const testing::TempDir root;
  Watched watched(root.path(), 0.02);
  for (int i = 0; i < 300; ++i) add(root, "a" + std::to_string(i));
  for (int i = 0; i < 300; i += 3) fs::remove_all(root / ("a" + std::to_string(i)));
  EXPECT_TRUE(watched.comes([&] { return watched.names().size() == 200; })) << watched.names().size();
}

TEST(RootWatcher, TheRootItselfMayGoAndComeBack) {
  const testing::TempDir folder;
  folder.write("root/sql/adapter_config.json", kWatchedConfig);
  Watched watched(folder / "root");
  fs::rename(folder / "root", folder / "elsewhere");
  EXPECT_THAT(watched.told(1), ElementsAre("-sql"));
  EXPECT_THAT(watched.names(), IsEmpty());
}

// Whatever it reads, from where the test says that names lie.
class PlannedCatalogue final : public FollowedCatalogue {
 public:
  void plan(std::map<std::string, std::string> folders) {
    auto view = std::make_shared<View>();
    for (const auto& [name, folder] : folders) view->places.emplace(name, Place{folder, std::string(64, 'a')});
    publish(std::move(view));
  }
  double look_every_s() const override { return 0.02; }

 private:
  Status read() override { return {}; }
};

TEST(RootWatcher, ACatalogueSaysWhatThereIs) {
  const testing::TempDir root;
  add(root, "v1");
  add(root, "v2");
  PlannedCatalogue catalogue;
  std::mutex mutex;
  std::vector<std::string> told;
  std::atomic<int> looks = 0;
  const auto watcher = RootWatcher::start(
      {.root = fs::canonical(root.path()).string(), .quiet_s = 0.02, .catalogue = &catalogue},
      [&](const RootChange& change) {
        const char* kind = change.kind == RootChange::Kind::kAppeared  ? "+"
                           : change.kind == RootChange::Kind::kChanged ? "~"
                                                                       : "-";
        const std::lock_guard lock(mutex);
        told.push_back(kind + change.name);
      },
      [&] { ++looks; });
  ASSERT_TRUE(watcher.ok());
  const auto come = [&](size_t count) {
    const auto end = std::chrono::steady_clock::now() + kLong;
    for (;; std::this_thread::sleep_for(std::chrono::milliseconds(5))) {
      const std::lock_guard lock(mutex);
      if (told.size() >= count || std::chrono::steady_clock::now() > end) return told;
    }
  };
  EXPECT_EQ((*watcher)->adapters()->size(), 2u) << "until there is a catalogue the root says it";
  const std::string one = fs::canonical(root / "v1").string(), two = fs::canonical(root / "v2").string();
  catalogue.plan({{"sql", one}});
  EXPECT_THAT(come(3), ::testing::UnorderedElementsAre("+sql", "-v1", "-v2"));
  ASSERT_EQ((*watcher)->adapters()->size(), 1u);
  const auto faults = (*watcher)->faults();
  ASSERT_THAT(*faults, SizeIs(1)) << "what it does not name is told";
  EXPECT_THAT(faults->at("v2").message(), HasSubstr("does not name it"));
  catalogue.plan({{"sql", two}});
  EXPECT_THAT(come(4).back(), "~sql");
  catalogue.plan({});
  EXPECT_THAT(come(5).back(), "-sql");
  EXPECT_GT(looks.load(), 0);
}

TEST(RootWatcher, ARootThatIsNotThereIsAnError) {
  const testing::TempDir folder;
  EXPECT_EQ(RootWatcher::start({.root = folder / "none"}, [](const RootChange&) {}).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace choral::serve
