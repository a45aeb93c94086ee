#include "tools/quantize/new_folder.h"

#include <gmock/gmock.h>

#include "support/temp_dir.h"

namespace choral::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
namespace fs = std::filesystem;

std::vector<std::string> files_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  return names;
}

// Makes the folder with one file in it.
Status make(const fs::path& path, bool replace) {
  CHORAL_TRY(const auto folder, NewFolder::plan(path, replace));
  CHORAL_RETURN_IF_ERROR(folder->make());
  std::ofstream(folder->partial() / "new") << "1";
  return folder->commit();
}

TEST(NewFolder, IsThereWholeOrNotAtAll) {
  const choral::testing::TempDir dir;
  fs::create_directory(dir.path() / "empty");
  for (const char* name : {"fresh", "with-slash/", "empty"}) {
    const Status made = make(dir.path() / name, false);
    EXPECT_TRUE(made.ok()) << made.to_string();
    EXPECT_THAT(files_in(dir.path() / name), UnorderedElementsAre("new"));
  }
  {
    const auto folder = *NewFolder::plan(dir.path() / "given-up", false);
    ASSERT_TRUE(folder->make().ok());
    EXPECT_TRUE(fs::exists(folder->partial()));
  }
  const auto removed = *NewFolder::plan(dir.path() / "interrupted", false);
  ASSERT_TRUE(removed->make().ok());
  removed->remove_partial();
  EXPECT_EQ(removed->commit().code(), Code::kCancelled);
  EXPECT_THAT(files_in(dir.path()), UnorderedElementsAre("fresh", "with-slash", "empty"));
}

TEST(NewFolder, ReplacesAModelAndNothingElse) {
  const choral::testing::TempDir dir;
  dir.write("model/config.json", "{}");
  dir.write("notes/diary.txt", "");
  dir.write("file", "");
  const auto error = [&](const char* name, bool replace) { return make(dir.path() / name, replace).message(); };
  EXPECT_THAT(std::string(error("model", false)),
              HasSubstr("is not empty; name another folder, or replace the model in it with --force"));
  EXPECT_THAT(std::string(error("notes", true)), HasSubstr("holds no model (no config.json)"));
  EXPECT_THAT(std::string(error("file", true)), HasSubstr("is no folder"));
  EXPECT_EQ(make(dir.path() / "no/such", true).code(), Code::kNotFound);
  EXPECT_THAT(files_in(dir.path() / "model"), UnorderedElementsAre("config.json"));
  EXPECT_TRUE(make(dir.path() / "model", true).ok());
  EXPECT_THAT(files_in(dir.path() / "model"), UnorderedElementsAre("new"));
  EXPECT_THAT(files_in(dir.path()), UnorderedElementsAre("model", "notes", "file"));
}

}  // namespace
}  // namespace choral::tools
