// Names without an engine: which are taken in, which version they stand for, and how many are kept.
#include "engine/adapters/adapter_registry.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "engine/adapters/registry_test.h"
#include "engine/adapters/small_adapters_test.h"

namespace choral::engine {
namespace {

using ::testing::HasSubstr;
using namespace std::string_literals;

class AdapterRegistryTest : public ::testing::Test {
 protected:
  std::shared_ptr<AdapterRegistry> make(size_t max_root_names = 10'000) {
    return make_registry(files_.targets(), {.load = {}, .root = files_.root().string(), .max_root_names = max_root_names});
  }
  // Names it, and is its engine until it is read.
  static std::shared_ptr<AdapterVersion> load(AdapterRegistry& registry, const std::string& name) {
    const auto version = version_of(registry, name);
    for (bool read = version == nullptr; !read; std::this_thread::yield()) {
      std::vector<LoadedAdapter> loaded;
      registry.take_loaded(loaded);
      registry.update(*version, [&](const AdapterInfo& info) { read = !info.digest.empty(); });
    }
    return version;
  }
  static std::shared_ptr<AdapterVersion> version_of(AdapterRegistry& registry, const std::string& name) {
    const std::vector<AdapterUse> use = {{name}};
    const auto found = registry.resolve(use);
    EXPECT_TRUE(found.ok()) << found.status().to_string();
    return found.ok() ? found->front().version : nullptr;
  }
  // What became of the version's read.
  static Status read_of(AdapterRegistry& registry, const std::shared_ptr<AdapterVersion>& version) {
    for (;; std::this_thread::yield()) {
      std::vector<LoadedAdapter> loaded;
      registry.take_loaded(loaded);
      for (const auto& one : loaded) {
        if (one.version == version) return one.packed.status();
      }
    }
  }
  static Status refusal(AdapterRegistry& registry, const std::string& name) {
    const std::vector<AdapterUse> use = {{name}};
    return registry.resolve(use).status();
  }

  SmallAdapters files_;
};

TEST_F(AdapterRegistryTest, OnlyOneSpellingIsKnownAndNothingElseIsKept) {
  files_.write("all", 1);
  files_.write("team/x", 2);
  files_.write("base", 3);
  const auto made = make();
  AdapterRegistry& registry = *made;
  const std::pair<std::string, Code> bad[] = {{"all\0nonsense"s, Code::kInvalidArgument},
                                              {"team//////x", Code::kInvalidArgument},
                                              {"team/" + std::string(1 << 20, '/') + "x", Code::kInvalidArgument},
                                              {"team/x/", Code::kInvalidArgument},
                                              {"base", Code::kInvalidArgument},
                                              {"../all", Code::kInvalidArgument},
                                              {"al", Code::kNotFound}};
  for (const auto& [name, code] : bad) {
    EXPECT_EQ(refusal(registry, name).code(), code);
    EXPECT_EQ(registry.pin(name, true).code(), code);
    EXPECT_EQ(registry.unload(name).code(), code);
    EXPECT_EQ(registry.load({name, "/no/such/folder"}, false).code(), code);
  }
  EXPECT_TRUE(registry.list().empty());
  EXPECT_THAT(refusal(registry, "team//////x").message(), HasSubstr("write 'team/x'"));
  EXPECT_THAT(refusal(registry, "bas").message(), ::testing::Not(HasSubstr("'base'"))) << "what cannot be asked for is suggested";
}

TEST_F(AdapterRegistryTest, ALinkOutOfTheRootIsNotSuggestedAsItself) {
  const SmallAdapters elsewhere;
  std::filesystem::create_directory_symlink(elsewhere.write("there", 1), files_.root() / "linked");
  const auto made = make();
  AdapterRegistry& registry = *made;
  const std::string says = refusal(registry, "linked").message();
  EXPECT_THAT(says, ::testing::AllOf(HasSubstr("leads out of"), HasSubstr("there;"), ::testing::Not(HasSubstr("did you mean"))));
}

TEST_F(AdapterRegistryTest, OfTheRootsNamesThoseUsedLastAreKnown) {
  for (int i = 0; i < 8; ++i) files_.write(std::to_string(i), i + 1);
  const auto made = make(4);
  AdapterRegistry& registry = *made;
  const auto used = load(registry, "0");
  for (int round = 0; round < 2; ++round) {
    for (int i = 1; i < 8; ++i) {
      ASSERT_TRUE(load(registry, std::to_string(i)) != nullptr);
      EXPECT_LE(registry.list().size(), 4u);
    }
  }
  EXPECT_EQ(registry.list().front().name, "0") << "one that is in use was forgotten";
  EXPECT_EQ(registry.list().back().name, "7");
  EXPECT_GT(registry.ended_versions(), 0u) << "the engine is not told";
  EXPECT_EQ(registry.list().back().generation, 1) << "the same content counts twice";
}

TEST_F(AdapterRegistryTest, AReplacementThatFailsLeavesTheNameAsItWas) {
  const auto made = make();
  AdapterRegistry& registry = *made;
  ASSERT_TRUE(registry.load({"a", files_.write("one", 1)}, false).ok());
  const AdapterInfo first = registry.list().front();
  const std::string two = files_.write("two", 2);
  EXPECT_EQ(registry.load({"a", two}, false).code(), Code::kAlreadyExists);
  EXPECT_EQ(registry.load({"a", (files_.root() / "none").string()}, true).code(), Code::kNotFound);
  EXPECT_EQ(registry.list().front().digest, first.digest);
  EXPECT_EQ(registry.list().front().id, first.id);
  ASSERT_TRUE(registry.load({"a", two}, true).ok());
  EXPECT_NE(registry.list().front().digest, first.digest);
  EXPECT_NE(registry.list().front().id, first.id) << "another version";
  EXPECT_EQ(registry.list().front().generation, 2);
}

TEST_F(AdapterRegistryTest, WhoExpectsAGenerationReplacesThatOneAlone) {
  const auto made = make();
  AdapterRegistry& registry = *made;
  const std::string one = files_.write("one", 1), two = files_.write("two", 2);
  EXPECT_EQ(registry.load({"a", one}, true, 1).code(), Code::kAlreadyExists) << "there is none";
  EXPECT_TRUE(registry.list().empty());
  ASSERT_TRUE(registry.load({"a", one}, false, 0).ok());
  EXPECT_EQ(registry.load({"a", two}, true, 0).code(), Code::kAlreadyExists);
  const Status stale = registry.load({"a", two}, true, 7);
  EXPECT_EQ(stale.code(), Code::kAlreadyExists);
  EXPECT_THAT(stale.message(), HasSubstr("'a' is at generation 1, not 7"));
  ASSERT_TRUE(registry.load({"a", two}, false, 1).ok()) << "no word of replacing is needed";
  EXPECT_EQ(registry.list().front().generation, 2);
  EXPECT_EQ(registry.unload("a", 1).code(), Code::kAlreadyExists);
  EXPECT_EQ(registry.list().size(), 1U);
  EXPECT_TRUE(registry.unload("a", 2).ok());
  EXPECT_EQ(registry.unload("a", 2).code(), Code::kNotFound);
  ASSERT_TRUE(registry.load({"a", one}, false, 0).ok());
  EXPECT_EQ(registry.list().front().generation, 3) << "an old number would stand for another content";
}

TEST_F(AdapterRegistryTest, OfManyWhoExpectTheSameGenerationOneSucceeds) {
  const auto made = make();
  AdapterRegistry& registry = *made;
  constexpr int kClients = 6;
  std::vector<std::string> paths;
  for (int i = 0; i < kClients; ++i) paths.push_back(files_.write("v" + std::to_string(i), 10 + i));
  ASSERT_TRUE(registry.load({"a", files_.write("first", 1)}, false).ok());
  std::atomic<int> succeeded = 0, stale = 0;
  std::vector<std::thread> clients;
  for (const auto& path : paths) {
    clients.emplace_back([&] {
      const Status loaded = registry.load({"a", path}, true, 1);
      ++(loaded.ok() ? succeeded : stale);
      EXPECT_TRUE(loaded.ok() || loaded.code() == Code::kAlreadyExists) << loaded.to_string();
    });
  }
  for (auto& client : clients) client.join();
  EXPECT_EQ(succeeded, 1);
  EXPECT_EQ(stale, kClients - 1);
  EXPECT_EQ(registry.list().front().generation, 2);
}

TEST_F(AdapterRegistryTest, GenerationsGoOnFromWhereANameWasLastSeen) {
  const auto made = make();
  AdapterRegistry& registry = *made;
  const std::string one = files_.write("one", 1);
  ASSERT_TRUE(registry.load({.name = "a", .path = one, .last_generation = 4, .last_digest = "another"}, false).ok());
  const AdapterInfo other = registry.list().front();
  EXPECT_EQ(other.generation, 5) << "its files hold something else by now";
  ASSERT_TRUE(registry.load({.name = "b", .path = one, .last_generation = 4, .last_digest = other.digest}, false).ok());
  EXPECT_EQ(registry.list().back().generation, 4);
}

TEST_F(AdapterRegistryTest, WithoutAnEngineNothingIsPinnedAndNoNameGivenForIt) {
  const auto made = make();
  AdapterRegistry& registry = *made;
  const std::string one = files_.write("one", 1);
  EXPECT_EQ(registry.load({.name = "a", .path = one, .pinned = true}, false).code(), Code::kUnavailable);
  EXPECT_TRUE(registry.list().empty());
  ASSERT_TRUE(registry.load({"a", one}, false).ok());
  EXPECT_EQ(registry.pin("a", true).code(), Code::kUnavailable);
  EXPECT_FALSE(registry.list().front().pinned);
}

TEST_F(AdapterRegistryTest, ANameFollowsItsFilesAndWhoCameBeforeKeepsItsVersion) {
  files_.write("a", 1);
  const auto made = make();
  AdapterRegistry& registry = *made;
  const auto first = load(registry, "a");
  EXPECT_EQ(version_of(registry, "a"), first) << "unchanged files are not read again";
  files_.write("a", 2);
  const auto second = load(registry, "a");
  EXPECT_NE(second, first);
  EXPECT_EQ(second->older, first);
  EXPECT_EQ(registry.present(*first), second);
  EXPECT_EQ(registry.list().front().generation, 2);
  ASSERT_TRUE(registry.unload("a").ok());
  EXPECT_EQ(registry.present(*first), nullptr);
}

// As an engine answers it: by the failure that there was, without a read.
TEST_F(AdapterRegistryTest, AFailedFirstReadIsRememberedWhileItsFilesAreTheSame) {
  const std::filesystem::path folder = files_.write("a", 1);
  const auto weights = folder / "adapter_model.safetensors";
  std::filesystem::resize_file(weights, 100);
  const auto made = make();
  AdapterRegistry& registry = *made;
  const auto bad = version_of(registry, "a");
  EXPECT_EQ(read_of(registry, bad).code(), Code::kCorrupt);
  for (int i = 0; i < 3; ++i) {
    const auto again = registry.resolve(std::vector<AdapterUse>{{"a"}});
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again->front().version, bad);
    EXPECT_LT(again->front().failures_before, bad->failed_reads);
  }
  const auto told = registry.list();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].state, AdapterState::kFailed);
  EXPECT_EQ(told[0].loads, 1) << "nobody read it again";
  EXPECT_EQ(told[0].requests, 4);
  ASSERT_TRUE(registry.load({"a", files_.write("other", 2)}, false).ok()) << "the name is not taken";
  ASSERT_TRUE(registry.unload("a").ok());

  EXPECT_EQ(read_of(registry, version_of(registry, "a")).code(), Code::kCorrupt);
  files_.write("a", 3);
  const auto mended = load(registry, "a");
  EXPECT_NE(mended, bad);
  EXPECT_EQ(registry.list().front().error, "");
  EXPECT_EQ(registry.list().front().errors, 1) << "its history stays";
  std::filesystem::remove_all(folder);
  files_.write("b", 1);
  std::filesystem::resize_file(files_.root() / "b" / "adapter_model.safetensors", 100);
  EXPECT_EQ(read_of(registry, version_of(registry, "b")).code(), Code::kCorrupt);
  std::filesystem::remove_all(files_.root() / "b");
  EXPECT_EQ(refusal(registry, "b").code(), Code::kNotFound) << "what is gone is not told";
  EXPECT_EQ(registry.list().size(), 1U);
}

// 10,000 names, and anybody's guesses: what they cost is counted.
TEST_F(AdapterRegistryTest, UnknownNamesAreAnsweredWithoutGoingThroughAllNames) {
  files_.write("adapter-one", 1);
  double now = 100;
  const AdapterNameList none;
  AdapterHints hints(files_.root().string(), [&now] { return now; });
  EXPECT_EQ(hints.nearest("adapter-onn", none), "adapter-one");
  int hinted = 1;
  for (int i = 0; i < 1000; ++i) hinted += hints.nearest("adapter-onn", none).empty() ? 0 : 1;
  EXPECT_EQ(hinted, HintBudget::kHintsPerSecond);
  EXPECT_EQ(hints.root_listings(), 1);
  now += 1;
  EXPECT_EQ(hints.nearest("adapter-onn", none), "adapter-one");
  EXPECT_EQ(hints.root_listings(), 1) << "it has not changed";
  files_.write("zebra", 1);
  std::filesystem::last_write_time(files_.root(), std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_EQ(hints.nearest("zebre", none), "") << "listed once a second at most";
  now += 1;
  EXPECT_EQ(hints.nearest("zebre", none), "zebra");
  EXPECT_EQ(hints.root_listings(), 2);
}

TEST_F(AdapterRegistryTest, ListsAreMadeOnceForEachChangeOfNames) {
  AdapterNameBoard board;
  const auto told = [](const std::string& name) {
    AdapterInfo info;
    info.name = name;
    info.path = "/of/" + name;
    return std::make_shared<ShownInfo>(info);
  };
  for (int i = 0; i < 10'000; ++i) board.put(fmt::format("{:05}", i * 7 % 10'000), told(std::to_string(i)));
  const AdapterNames all = board.names();
  EXPECT_EQ(all->size(), 10'000U);
  EXPECT_TRUE(std::is_sorted(all->begin(), all->end(), [](const auto& a, const auto& b) { return a->name < b->name; }));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(board.names(), all);
  EXPECT_EQ(board.lists_made(), 1);
  const auto changed = told("x");
  board.put("00500", changed);
  board.erase("00007");
  board.put("000070", told("y"));
  board.erase("never there");
  const AdapterNames after = board.names();
  EXPECT_EQ(board.lists_made(), 2);
  ASSERT_EQ(after->size(), 10'000U);
  EXPECT_EQ((*after)[7]->name, "000070");
  EXPECT_EQ((*after)[500]->path, "/of/x");
  changed->change([](AdapterInfo& info) { info.requests = 3; });
  EXPECT_EQ(board.infos()[500].requests, 3) << "what is told is as it is now";
  EXPECT_EQ(board.lists_made(), 2);
}

TEST_F(AdapterRegistryTest, FilesThatTurnBadAreTriedOnceAndTheNameStaysWhatItWas) {
  const std::filesystem::path folder = files_.write("a", 1);
  const auto made = make();
  AdapterRegistry& registry = *made;
  const auto first = load(registry, "a");
  std::filesystem::resize_file(folder / "adapter_model.safetensors", 100);
  const auto bad = version_of(registry, "a");
  ASSERT_NE(bad, first) << "somebody must look";
  EXPECT_EQ(read_of(registry, bad).code(), Code::kCorrupt);
  EXPECT_EQ(version_of(registry, "a"), first);
  EXPECT_THAT(registry.list().front().error, HasSubstr("adapter_model.safetensors"));
  files_.write("a", 3);
  EXPECT_NE(load(registry, "a"), first);
  EXPECT_EQ(registry.list().front().error, "");
}

}  // namespace
}  // namespace choral::engine
