#include "io/hub_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "support/temp_dir.h"

namespace choral::io {
namespace {

namespace fs = std::filesystem;
using choral::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kCommit = "0123456789abcdef0123456789abcdef01234567";

// A cache with one model, as the hub client lays it out.
struct Cache {
  TempDir folder;
  std::vector<fs::path> roots{folder.path()};
  fs::path snapshot;

  explicit Cache(const std::string& model_folder = "models--org--tiny-model") {
    folder.write(model_folder + "/refs/main", kCommit);
    const std::string file = fmt::format("{}/snapshots/{}/config.json", model_folder, kCommit);
    folder.write(file, "{}");
    snapshot = (folder.path() / file).parent_path();
  }
};

TEST(ResolveModel, FindsACachedModelByItsName) {
  const Cache cache;
  const auto path = resolve_model("org/tiny-model", cache.roots);
  ASSERT_TRUE(path.ok()) << path.status().message();
  EXPECT_EQ(*path, cache.snapshot);
  const Cache plain("models--gpt2");
  EXPECT_EQ(*resolve_model("gpt2", plain.roots), plain.snapshot);
}

TEST(ResolveModel, ARevisionIsABranchOrTagOrCommit) {
  const Cache cache;
  cache.folder.write("models--org--tiny-model/refs/refs/pr/1", kCommit);
  for (const std::string_view revision : {std::string_view("main"), std::string_view("refs/pr/1"), kCommit})
    EXPECT_EQ(*resolve_model(fmt::format("org/tiny-model@{}", revision), cache.roots), cache.snapshot) << revision;
  const Status missing = resolve_model("org/tiny-model@v2", cache.roots).status();
  EXPECT_EQ(missing.code(), Code::kNotFound);
  EXPECT_THAT(missing.message(), AllOf(HasSubstr("'v2'"), HasSubstr("`choral pull org/tiny-model@v2`")));
  for (const std::string_view bad : {"", "..", "../main", "a/../b", "/main", "a b", ".x", "-x", "a@b"})
    EXPECT_EQ(resolve_model(fmt::format("org/tiny-model@{}", bad), cache.roots).status().code(), Code::kInvalidArgument) << bad;
}

TEST(ResolveModel, APathThatExistsComesFirst) {
  const Cache cache;
  EXPECT_EQ(*resolve_model(cache.folder.path().string(), {}), cache.folder.path());
  const std::string file = cache.folder.write("m.gguf", "GGUF");
  EXPECT_EQ(*resolve_model(file, cache.roots), file);
}

TEST(ResolveModel, AMissNamesThePlacesAndTheNearest) {
  const Cache cache;
  const auto miss = resolve_model("org/tiny-modle", cache.roots);
  EXPECT_EQ(miss.status().code(), Code::kNotFound);
  EXPECT_THAT(miss.status().message(), AllOf(HasSubstr((cache.folder.path() / "models--org--tiny-modle").string()),
                                             HasSubstr("'org/tiny-model'"), HasSubstr("`choral pull org/tiny-modle`")));
  EXPECT_THAT(resolve_model("./absent", cache.roots).status().message(), HasSubstr("no such file"));
  EXPECT_THAT(resolve_model("org/absent.gguf", cache.roots).status().message(), HasSubstr("no such file"));
}

TEST(ResolveModel, AMissNamesWhatStandsBeside) {
  const Cache cache;
  const std::string file = cache.folder.write("llama.gguf", "GGUF");
  EXPECT_THAT(resolve_model((cache.folder.path() / "lama.gguf").string(), {}).status().message(), HasSubstr("'llama.gguf'"));
  EXPECT_THAT(resolve_adapter((cache.folder.path() / "llama.guf").string()).status().message(), HasSubstr("'llama.gguf'"));
  EXPECT_THAT(resolve_model((cache.folder.path() / "other").string(), {}).status().message(),
              AllOf(HasSubstr("no such file"), ::testing::Not(HasSubstr("nearest"))));
}

TEST(ResolveModel, UnfinishedAndForgedCaches) {
  const Cache cache;
  cache.folder.write("models--org--gone/refs/main", "ffff");
  EXPECT_THAT(resolve_model("org/gone", cache.roots).status().message(), HasSubstr("not finished"));
  cache.folder.write("models--org--evil/refs/main", "../../models--org--tiny-model");
  EXPECT_EQ(resolve_model("org/evil", cache.roots).status().code(), Code::kCorrupt);
  cache.folder.write("models--org--huge/refs/main", std::string(5000, 'a'));
  EXPECT_EQ(resolve_model("org/huge", cache.roots).status().code(), Code::kTooLarge);
  cache.folder.write("models--org--none/blobs/x", "");
  EXPECT_EQ(resolve_model("org/none", cache.roots).status().code(), Code::kNotFound);
}

TEST(ResolveModel, AFolderOfOneGgufFileIsThatFile) {
  const TempDir folder;
  folder.write("one/mmproj-x.gguf", "");
  folder.write("one/model.gguf", "");
  folder.write("one/README.md", "");
  EXPECT_EQ(*resolve_model((folder.path() / "one").string(), {}), folder.path() / "one/model.gguf");
  folder.write("one/b.gguf", "");
  EXPECT_THAT(resolve_model((folder.path() / "one").string(), {}).status().message(),
              HasSubstr("holds 2 GGUF files; name the one to load: b.gguf, model.gguf"));
  folder.write("one/config.json", "{}");
  EXPECT_EQ(*resolve_model((folder.path() / "one").string(), {}), folder.path() / "one");
  folder.write("adapter/adapter_config.json", "{}");
  EXPECT_THAT(resolve_model((folder.path() / "adapter").string(), {}).status().message(), HasSubstr("is an adapter"));
}

TEST(ResolveModel, NamesAreCheckedBeforeTheyBecomePaths) {
  for (const std::string_view bad : {"org/..", "org/../x", "a/b/c", "org/na me", "org/na\nme", "org/", "-x/y", "org/.hidden",
                                     "a--b/c", "org\\name", "\xc3\xa9/x"}) {
    EXPECT_FALSE(is_model_name(bad)) << bad;
    EXPECT_FALSE(resolve_model(bad, std::vector<fs::path>{"/"}).ok()) << bad;
  }
  EXPECT_FALSE(resolve_model("", {}).ok());
  EXPECT_FALSE(resolve_model(std::string_view("a\0b", 3), {}).ok());
  EXPECT_FALSE(is_model_name(std::string(97, 'a')));
  EXPECT_TRUE(is_model_name("HuggingFaceTB/SmolLM2-135M_v1.0"));
}

TEST(HubCacheRoots, FollowTheEnvironmentInItsOrder) {
  for (const char* name : {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"}) unsetenv(name);
  setenv("HOME", "/h", 1);
  EXPECT_THAT(hub_cache_roots(), ElementsAre("/h/.cache/huggingface/hub"));
  setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_THAT(hub_cache_roots(), ElementsAre("/x/huggingface/hub"));
  setenv("HF_HOME", "/hf", 1);
  EXPECT_THAT(hub_cache_roots(), ElementsAre("/hf/hub"));
  setenv("HF_HUB_CACHE", "/c", 1);
  EXPECT_THAT(hub_cache_roots(), ElementsAre("/c"));
}

}  // namespace
}  // namespace choral::io
