#include "io/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <thread>

#include "support/temp_dir.h"

namespace choral::io {
namespace {

using choral::testing::TempDir;
using ::testing::HasSubstr;

TEST(MappedFile, MapsTheBytesAndSurvivesTheNameBeingRemoved) {
  const TempDir folder;
  const std::string path = folder.write("f", "hello");
  auto file = MappedFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  std::filesystem::remove(path);
  EXPECT_EQ((*file)->bytes().size(), 5u);
  EXPECT_EQ(static_cast<char>((*file)->bytes()[4]), 'o');
  EXPECT_EQ((*file)->path(), path);
}

TEST(MappedFile, AnEmptyFileIsEmpty) {
  const TempDir folder;
  auto file = MappedFile::open(folder.write("f", ""));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_TRUE((*file)->bytes().empty());
  (*file)->release((*file)->bytes());
}

TEST(MappedFile, RefusesWhatIsNoRegularFile) {
  const TempDir folder;
  EXPECT_EQ(MappedFile::open(folder / "absent").status().code(), Code::kNotFound);
  EXPECT_THAT(MappedFile::open(folder / "absent").status().message(), HasSubstr("absent"));
  EXPECT_EQ(MappedFile::open(folder.path()).status().code(), Code::kInvalidArgument);
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::open(folder / "pipe").status().code(), Code::kInvalidArgument) << "and must not wait for a writer";
  EXPECT_EQ(MappedFile::open("/dev/zero").status().code(), Code::kInvalidArgument);
}

TEST(MappedFile, ReleaseDropsOnlyWholePagesInsideTheRange) {
  const TempDir folder;
  const std::string content(64 * 1024, 'x');
  auto file = MappedFile::open(folder.write("f", content));
  ASSERT_TRUE(file.ok());
  const auto bytes = (*file)->bytes();
  (*file)->release(bytes.subspan(10, 20));  // no whole page
  (*file)->release(bytes.subspan(100, 50'000));
  (*file)->release(bytes);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), content);
}

TEST(MappedFile, IsToldByItsTimesOnceTheyAreOld) {
  const TempDir folder;
  const std::string path = folder.write("f", "hello");
  EXPECT_EQ((*MappedFile::open(path))->identity(), "") << "it may change again within the same tick";
  const auto settle = [] { std::this_thread::sleep_for(std::chrono::milliseconds(150)); };
  settle();
  const std::string identity = (*MappedFile::open(path))->identity();
  EXPECT_NE(identity, "");
  EXPECT_EQ((*MappedFile::open(path))->identity(), identity);
  // The same size and time of its content: only the system's own time tells.
  const auto time = std::filesystem::last_write_time(path);
  folder.write("f", "HELLO");
  std::filesystem::last_write_time(path, time);
  settle();
  const std::string changed = (*MappedFile::open(path))->identity();
  EXPECT_NE(changed, "");
  EXPECT_NE(changed, identity);
}

TEST(ReadWholeFile, KeepsItsLimit) {
  const TempDir folder;
  const std::string path = folder.write("f", "12345");
  EXPECT_EQ(*read_whole_file(path, 5), "12345");
  EXPECT_EQ(read_whole_file(path, 4).status().code(), Code::kTooLarge);
  EXPECT_EQ(read_whole_file(folder / "absent", 5).status().code(), Code::kNotFound);
  EXPECT_EQ(read_whole_file(folder.path(), 5).status().code(), Code::kInvalidArgument);
  EXPECT_GT(read_whole_file("/proc/self/status", 1 << 20)->size(), 10u) << "a file whose size is said to be 0";
  EXPECT_EQ(read_whole_file("/proc/self/status", 10).status().code(), Code::kTooLarge);
}

}  // namespace
}  // namespace choral::io
