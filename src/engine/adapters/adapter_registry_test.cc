// Names without an engine: which are taken in, and how many are kept.
#include "engine/adapters/adapter_registry.h"

#include <gmock/gmock.h>

#include <thread>

#include "engine/adapters/adapter_files_test.h"
#include "engine/adapters/registry_test.h"

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
    const std::vector<AdapterUse> use = {{name}};
    const auto found = registry.resolve(use);
    EXPECT_TRUE(found.ok()) << found.status().to_string();
    if (!found.ok()) return nullptr;
    const auto version = found->front().version;
    for (bool read = false; !read; std::this_thread::yield()) {
      std::vector<LoadedAdapter> loaded;
      registry.take_loaded(loaded);
      registry.update(*version, [&](const AdapterInfo& info) { read = !info.digest.empty(); });
    }
    return version;
  }
  static Status refusal(AdapterRegistry& registry, const std::string& name) {
    const std::vector<AdapterUse> use = {{name}};
    return registry.resolve(use).status();
  }

  AdapterFiles files_;
};

TEST_F(AdapterRegistryTest, OnlyOneSpellingIsKnownAndNothingElseIsKept) {
  files_.write("all", 4, 1);
  files_.write("team/x", 4, 2);
  files_.write("base", 4, 3);
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
  const AdapterFiles elsewhere;
  std::filesystem::create_directory_symlink(elsewhere.write("there", 4, 1), files_.root() / "linked");
  const auto made = make();
  AdapterRegistry& registry = *made;
  const std::string says = refusal(registry, "linked").message();
  EXPECT_THAT(says, ::testing::AllOf(HasSubstr("leads out of"), HasSubstr("there;"), ::testing::Not(HasSubstr("did you mean"))));
}

TEST_F(AdapterRegistryTest, OfTheRootsNamesThoseUsedLastAreKnown) {
  for (int i = 0; i < 8; ++i) files_.write(std::to_string(i), 2, static_cast<uint64_t>(i));
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
  EXPECT_GT(registry.retirements(), 0u) << "the engine is not told";
  EXPECT_EQ(registry.list().back().generation, 1) << "the same content counts twice";
}

}  // namespace
}  // namespace choral::engine
