#include "serve/catalogue/catalogue_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/check.h"
#include "serve/catalogue/drift.h"
#include "support/temp_dir.h"

namespace choral::serve {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
namespace fs = std::filesystem;

class CatalogueFolderTest : public ::testing::Test {
 protected:
  static std::string digest(char digit) { return std::string(64, digit); }
  std::string add_adapter(const std::string& name, const std::string& weights) const {
    root_.write(name + "/adapter_config.json", "{}");
    root_.write(name + "/adapter_model.safetensors", weights);
    return root_ / name;
  }
  void write_map(const std::string& text) const {
    root_.write("next.json", text);
    fs::rename(root_ / "next.json", root_ / CatalogueFolder::kFileName);
  }
  std::vector<std::string> contents() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(root_ / CatalogueFolder::kContents)) {
      if (entry.is_directory()) names.push_back(entry.path().filename().string());
    }
    return names;
  }
  std::string text_of(const fs::path& path) const {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  testing::TempDir root_;
  CatalogueFolder folder_{fs::canonical(root_.path()).string()};
};

TEST_F(CatalogueFolderTest, WithoutAMapThereIsNone) {
  ASSERT_TRUE(folder_.look().ok());
  EXPECT_EQ(folder_.now(), nullptr);
  EXPECT_EQ(folder_.places()->now(), nullptr);
}

TEST_F(CatalogueFolderTest, TheMapSaysWhereNamesLie) {
  add_adapter("v1", "one");
  fs::create_directory_symlink("/", root_ / "out");
  write_map(R"({"version": 1, "adapters": {"sql": {"path": "v1", "digest": ")" + digest('a') + R"("}, "gone": {"digest": ")" +
            digest('a') + R"("}, "leak": {"path": "out", "digest": ")" + digest('a') + R"("}}})");
  ASSERT_TRUE(folder_.look().ok());
  const auto view = folder_.now();
  ASSERT_NE(view, nullptr);
  ASSERT_THAT(view->places, SizeIs(1));
  EXPECT_EQ(view->places.at("sql").digest, digest('a'));
  EXPECT_EQ(folder_.places()->now()->at("sql"), fs::canonical(root_ / "v1").string());
  ASSERT_THAT(view->faults, SizeIs(2));
  EXPECT_THAT(view->faults.at("gone").message(), HasSubstr("no such folder"));
  EXPECT_THAT(view->faults.at("leak").message(), HasSubstr("leads out"));
  add_adapter("gone", "late");  // the map came first
  ASSERT_TRUE(folder_.look().ok());
  EXPECT_TRUE(folder_.now()->places.contains("gone"));
}

TEST_F(CatalogueFolderTest, AMapThatCannotBeReadLeavesWhatThereWas) {
  add_adapter("sql", "one");
  write_map(R"({"version": 1, "adapters": {"sql": {"digest": ")" + digest('a') + R"("}}})");
  ASSERT_TRUE(folder_.look().ok());
  EXPECT_EQ(folder_.state().error, "");
  write_map("{");
  EXPECT_FALSE(folder_.look().ok());
  EXPECT_THAT(folder_.state().error, HasSubstr("catalogue.json"));
  EXPECT_EQ(folder_.state().failures, 1);
  EXPECT_TRUE(folder_.now()->places.contains("sql"));
  fs::remove(root_ / CatalogueFolder::kFileName);
  EXPECT_THAT(folder_.look().message(), HasSubstr("is gone"));
  EXPECT_TRUE(folder_.now()->places.contains("sql")) << "an unmounted disk takes every adapter away";
  write_map(R"({"version": 1, "adapters": {}})");
  ASSERT_TRUE(folder_.look().ok());
  EXPECT_THAT(folder_.now()->places, IsEmpty());
  EXPECT_EQ(folder_.state().error, "");
}

TEST_F(CatalogueFolderTest, WhatIsPutThereIsThereForOthers) {
  const std::string source = add_adapter("staging", "one");
  CatalogueFolder other(fs::canonical(root_.path()).string());
  const auto place = folder_.take_in(source);
  ASSERT_TRUE(place.ok()) << place.status().message();
  EXPECT_EQ(text_of(fs::path(*place) / "adapter_model.safetensors"), "one");
  ASSERT_TRUE(folder_.put("sql", digest('a'), *place).ok());
  EXPECT_EQ(folder_.places()->now()->at("sql"), *place) << "who wrote it does not see it at once";
  ASSERT_TRUE(other.look().ok());
  EXPECT_EQ(other.places()->now()->at("sql"), *place);
  root_.write("staging/adapter_model.safetensors", "two");
  EXPECT_EQ(text_of(fs::path(*place) / "adapter_model.safetensors"), "one");
  const auto second = other.take_in(source);
  ASSERT_TRUE(second.ok());
  ASSERT_TRUE(other.put("poet", digest('b'), *second).ok());
  ASSERT_TRUE(folder_.look().ok());
  EXPECT_THAT(folder_.now()->places, SizeIs(2)) << "one writer loses the other's";
  EXPECT_TRUE(*folder_.remove("sql"));
  EXPECT_FALSE(*folder_.remove("sql"));
  EXPECT_THAT(folder_.now()->places, SizeIs(1));
}

TEST_F(CatalogueFolderTest, WritersTakeTurns) {
  constexpr int kEach = 20;
  const std::string place = *folder_.take_in(add_adapter("staging", "one"));
  std::vector<std::thread> writers;
  for (const char* who : {"a", "b"}) {
    writers.emplace_back([&, who] {
      CatalogueFolder mine(fs::canonical(root_.path()).string());
      for (int i = 0; i < kEach; ++i) EXPECT_TRUE(mine.put(fmt::format("{}{}", who, i), digest('a'), place).ok());
    });
  }
  for (auto& writer : writers) writer.join();
  ASSERT_TRUE(folder_.look().ok());
  EXPECT_THAT(folder_.now()->places, SizeIs(2 * kEach));
}

TEST_F(CatalogueFolderTest, ALockThatStaysIsSaid) {
  CatalogueFolder hasty(root_.path().string(), {.lock_wait = std::chrono::seconds(0)});
  const std::string place = *folder_.take_in(add_adapter("staging", "one"));
  const int lock = ::open((root_ / ".contents/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);
  EXPECT_EQ(hasty.put("sql", digest('a'), place).code(), Code::kUnavailable);
  ::close(lock);
  EXPECT_TRUE(hasty.put("sql", digest('a'), place).ok());
}

TEST_F(CatalogueFolderTest, ADamagedMapIsNotWrittenOver) {
  const std::string place = *folder_.take_in(add_adapter("staging", "one"));
  write_map("{");
  EXPECT_FALSE(folder_.put("sql", digest('a'), place).ok());
  EXPECT_EQ(text_of(root_ / CatalogueFolder::kFileName), "{");
}

TEST_F(CatalogueFolderTest, WhatNoNameLeadsToIsDeletedALittleLater) {
  const std::string source = add_adapter("staging", "one");
  const auto put = [&](CatalogueFolder& folder) {
    const std::string place = *folder.take_in(source);
    CHORAL_CHECK(folder.put("sql", digest('a'), place).ok(), "it is put there");
    return place;
  };
  const std::string first = put(folder_), second = put(folder_);
  put(folder_);
  EXPECT_TRUE(fs::exists(first)) << "a replica may be on its way to it";
  CatalogueFolder later(fs::canonical(root_.path()).string(), {.kept = std::chrono::seconds(0)});
  const std::string last = put(later);
  EXPECT_FALSE(fs::exists(first));
  EXPECT_FALSE(fs::exists(second));
  EXPECT_TRUE(fs::exists(last));
  // Taken in and not named yet, when another one writes: it is marked, and the mark goes when it is named.
  const std::string between = *folder_.take_in(source);
  put(folder_);
  ASSERT_TRUE(folder_.put("poet", digest('a'), between).ok());
  EXPECT_FALSE(fs::exists(between + ".unnamed"));
  put(later);
  EXPECT_TRUE(fs::exists(between));
}

TEST_F(CatalogueFolderTest, OnlyAdaptersAreTakenIn) {
  EXPECT_EQ(folder_.take_in(root_ / "none").status().code(), Code::kNotFound);
  root_.write("one.gguf", "a GGUF file");
  const auto place = folder_.take_in(root_ / "one.gguf");
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(text_of(fs::path(*place) / "adapter_model.gguf"), "a GGUF file");
  EXPECT_THAT(contents(), SizeIs(1)) << "something partial stays";
}

TEST(DriftTest, AnotherContentThanTheCatalogueSays) {
  FollowedCatalogue::View view;
  view.places.emplace("sql", FollowedCatalogue::Place{"/root/v2", "b"});
  const auto drifts = [&](const std::string& digest, const std::string& path, bool is_found, const std::string& name = "sql") {
    AdapterInfo info;
    info.name = name;
    info.digest = digest;
    info.path = path;
    info.is_found = is_found;
    return has_drifted(info, view);
  };
  EXPECT_FALSE(drifts("b", "/root/v2", true));
  EXPECT_TRUE(drifts("a", "/root/v2", true)) << "its files were written over";
  EXPECT_FALSE(drifts("a", "/root/v1", true)) << "the next request reads it anew";
  EXPECT_TRUE(drifts("a", "/elsewhere", false)) << "somebody loaded another one here";
  EXPECT_FALSE(drifts("b", "/elsewhere", false));
  EXPECT_FALSE(drifts("", "/root/v2", true)) << "nobody has read it yet";
  EXPECT_FALSE(drifts("a", "/root/v2", true, "other"));
}

}  // namespace
}  // namespace choral::serve
