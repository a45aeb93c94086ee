#include "io/new_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "io/mapped_file.h"
#include "io/test_files.h"
#include "support/temp_dir.h"

namespace choral::io {
namespace {

using testing::bytes_of;

TEST(NewFile, IsThereWholeOrNotAtAll) {
  const choral::testing::TempDir dir;
  {
    const auto file = NewFile::create(dir / "x");
    ASSERT_TRUE(file.ok()) << file.status().message();
    ASSERT_TRUE((*file)->write(bytes_of("one")).ok());
    EXPECT_FALSE(std::filesystem::exists(dir / "x"));
    EXPECT_TRUE((*file)->unfinished_path().filename().string().starts_with("x" + std::string(NewFile::kMark)));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  const auto file = NewFile::create(dir / "x");
  ASSERT_TRUE((*file)->write(bytes_of("one")).ok());
  ASSERT_TRUE((*file)->write_at(5, bytes_of("six")).ok());
  ASSERT_TRUE((*file)->write(bytes_of("45")).ok());
  ASSERT_TRUE((*file)->finish().ok());
  EXPECT_EQ(*read_whole_file(dir / "x", 100), "one45six");
  EXPECT_FALSE(std::filesystem::exists((*file)->unfinished_path()));
}

TEST(NewFile, SeveralThatAreWrittenAtOnceDoNotMeet) {
  const choral::testing::TempDir dir;
  const auto a = NewFile::create(dir / "x"), b = NewFile::create(dir / "x");
  ASSERT_TRUE(a.ok() && b.ok());
  ASSERT_TRUE((*a)->write(bytes_of("longer")).ok());
  ASSERT_TRUE((*b)->write(bytes_of("b")).ok());
  ASSERT_TRUE((*a)->finish().ok());
  EXPECT_EQ(*read_whole_file(dir / "x", 100), "longer");
  ASSERT_TRUE((*b)->finish().ok());
  EXPECT_EQ(*read_whole_file(dir / "x", 100), "b");
}

TEST(NewFile, HasTheModeThatWasAskedFor) {
  const choral::testing::TempDir dir;
  const auto file = NewFile::create(dir / "x", 0600);
  ASSERT_TRUE((*file)->finish().ok());
  struct stat facts {};
  ASSERT_EQ(::stat((dir / "x").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600);
}

TEST(NewFile, SaysWhereItCannotBe) {
  const choral::testing::TempDir dir;
  EXPECT_THAT(NewFile::create(dir / "no/x").status().message(), ::testing::HasSubstr("cannot write"));
  std::filesystem::create_directories(dir / "folder/inside");
  const auto file = NewFile::create(dir / "folder");
  ASSERT_TRUE(file.ok());
  EXPECT_THAT((*file)->finish().message(), ::testing::HasSubstr("cannot rename"));
}

}  // namespace
}  // namespace choral::io
