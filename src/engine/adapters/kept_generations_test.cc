// Generations that outlast the engine: asked for before anybody hears of them, in one order, and never under the registry's lock.
#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <thread>

#include "engine/adapters/registry_test.h"
#include "engine/adapters/small_adapters_test.h"

namespace choral::engine {
namespace {

using ::testing::HasSubstr;

// Counts as CountedGenerations, tells what it was asked and does something meanwhile.
class Kept final : public AdapterGenerations {
 public:
  std::function<void()> meanwhile = [] {};
  Status result;
  std::vector<std::string> asked;  // names

  Result<int> number_of(const std::string& name, const std::string& digest) override {
    meanwhile();
    asked.push_back(name);
    if (!result.ok()) return result;
    return counted_.number_of(name, digest);
  }

 private:
  CountedGenerations counted_{100};
};

class KeptGenerationsTest : public ::testing::Test {
 protected:
  std::shared_ptr<AdapterRegistry> make() {
    return make_registry(files_.targets(), {.load = {}, .root = files_.root().string(), .generations = kept_});
  }
  // Names it, and is its engine until something was made of its files.
  static Status read(AdapterRegistry& registry, const std::string& name) {
    const std::vector<AdapterUse> use = {{name}};
    const auto found = registry.resolve(use);
    if (!found.ok()) return found.status();
    for (;; std::this_thread::yield()) {
      std::vector<LoadedAdapter> loaded;
      registry.take_loaded(loaded);
      for (const auto& one : loaded) {
        if (one.version == found->front().version) return one.packed.status();
      }
    }
  }

  SmallAdapters files_;
  const std::shared_ptr<Kept> kept_ = std::make_shared<Kept>();
};

TEST_F(KeptGenerationsTest, EveryContentOfEveryNameIsAskedForOnce) {
  const auto registry = make();
  files_.write("found", 1);
  ASSERT_TRUE(registry->load({"given", files_.write("elsewhere", 2)}, false).ok());
  ASSERT_TRUE(read(*registry, "found").ok());
  files_.write("found", 3);
  ASSERT_TRUE(read(*registry, "found").ok());
  EXPECT_THAT(kept_->asked, ::testing::ElementsAre("given", "found", "found"));
  const auto all = registry->list();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].generation, 102) << "the second content of 'found'";
  EXPECT_EQ(all[1].generation, 101);
}

TEST_F(KeptGenerationsTest, NobodyWaitsForTheirDisk) {
  const auto registry = make();
  const std::string path = files_.write("one", 1);
  bool asked = false;
  kept_->meanwhile = [&] {  // what the engine thread and requests do: it would hang
    std::vector<LoadedAdapter> loaded;
    registry->take_loaded(loaded);
    EXPECT_EQ(registry->list().size(), asked ? 1u : 0u) << "it has no number yet";
    asked = true;
  };
  ASSERT_TRUE(registry->load({"a", path}, false).ok());
  EXPECT_TRUE(asked);
  files_.write("one", 2);
  ASSERT_TRUE(read(*registry, "a").ok());
  kept_->meanwhile = [] {};
}

TEST_F(KeptGenerationsTest, WhatCannotBeKeptIsNotTold) {
  const auto registry = make();
  files_.write("found", 1);
  const std::string path = files_.write("elsewhere", 2);
  ASSERT_TRUE(registry->load({"given", path}, false).ok());
  kept_->result = Status(Code::kInternal, "the disk is gone");
  EXPECT_THAT(registry->load({"other", path}, false).message(), HasSubstr("the disk is gone"));
  EXPECT_THAT(read(*registry, "found").message(), HasSubstr("'found': the disk is gone"));
  files_.write("elsewhere", 3);
  EXPECT_EQ(read(*registry, "given").code(), Code::kInternal);
  for (const auto& info : registry->list()) {
    EXPECT_EQ(info.generation, info.name == "given" ? 101 : 0) << info.name;
    EXPECT_THAT(info.error, HasSubstr("the disk is gone"));
  }
  kept_->result = {};
  EXPECT_TRUE(read(*registry, "given").ok()) << "the files were never at fault";
  EXPECT_TRUE(read(*registry, "found").ok());
  for (const auto& info : registry->list()) EXPECT_EQ(info.generation, info.name == "given" ? 102 : 101) << info.name;
}

// Each load's number is the name's by the time the next one asks: what is kept last is what the name stands for.
TEST_F(KeptGenerationsTest, WhatIsKeptLastIsWhatANameStandsFor) {
  const auto registry = make();
  constexpr int kClients = 6;
  std::vector<std::string> paths;
  for (int i = 0; i < kClients; ++i) paths.push_back(files_.write("v" + std::to_string(i), 10 + i));
  kept_->meanwhile = [&] {
    const auto all = registry->list();
    EXPECT_EQ(all.empty() ? 100 : all.front().generation, 100 + static_cast<int>(kept_->asked.size()));
  };
  std::vector<std::thread> clients;
  for (const auto& path : paths) clients.emplace_back([&] { EXPECT_TRUE(registry->load({"a", path}, /*replace=*/true).ok()); });
  for (auto& client : clients) client.join();
  EXPECT_EQ(registry->list().front().generation, 100 + kClients);
}

}  // namespace
}  // namespace choral::engine
