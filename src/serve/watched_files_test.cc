#include "serve/watched_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "support/temp_dir.h"

namespace choral::serve {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class WatchedFilesTest : public ::testing::Test {
 protected:
  WatchedFiles& watch(std::vector<std::string> paths) {
    files_ = std::make_unique<WatchedFiles>(std::vector<WatchedFiles::Group>{{"keys", std::move(paths), [this] {
                                                                                ++readings_;
                                                                                return answer_;
                                                                              }}});
    EXPECT_TRUE(
        files_->start([this](const std::string& name, const Status& read) { told_.push_back(name + ": " + read.message()); })
            .ok());
    files_->stop();  // each look is the test's
    return *files_;
  }
  // Whether one more reading came of two looks, the first of which only sees that something changed.
  bool is_read_again() {
    const int before = readings_;
    files_->look();
    EXPECT_EQ(readings_, before) << "it may still be written";
    files_->look();
    return readings_ == before + 1;
  }

  const testing::TempDir folder_;
  Status answer_;
  int readings_ = 0;
  std::vector<std::string> told_;
  std::unique_ptr<WatchedFiles> files_;
};

TEST_F(WatchedFilesTest, WhatDoesNotChangeIsNotRead) {
  auto& files = watch({folder_.write("a", "1"), folder_ / "absent"});
  for (int i = 0; i < 4; ++i) files.look();
  EXPECT_EQ(readings_, 0);
  EXPECT_THAT(told_, IsEmpty());
}

TEST_F(WatchedFilesTest, EveryWayToChangeAFileIsSeen) {
  const std::string path = folder_.write("a", "1");
  auto& files = watch({path});
  folder_.write("a", "longer");
  EXPECT_TRUE(is_read_again()) << "written over";
  fs::rename(folder_.write("new", "longer"), path);
  EXPECT_TRUE(is_read_again()) << "renamed";
  const timespec times[2] = {{1, 5}, {1, 5}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  EXPECT_TRUE(is_read_again()) << "another time";
  fs::remove(path);
  EXPECT_TRUE(is_read_again()) << "gone";
  folder_.write("a", "1");
  EXPECT_TRUE(is_read_again()) << "back";
  files.look();
  EXPECT_EQ(readings_, 5);
}

// As the kubelet lays out a Secret: the file is a link into ..data, which is a link that is replaced.
TEST_F(WatchedFilesTest, AFolderThatIsTurnedToAnotherIsSeen) {
  folder_.write("..1/keys", "one");
  folder_.write("..2/keys", "two");
  fs::create_symlink("..1", folder_ / "..data");
  fs::create_symlink("..data/keys", folder_ / "keys");
  watch({folder_ / "keys"});
  fs::create_symlink("..2", folder_ / "..data_tmp");
  fs::rename(folder_ / "..data_tmp", folder_ / "..data");
  EXPECT_TRUE(is_read_again());
}

TEST_F(WatchedFilesTest, APipeIsNotWaitedFor) {
  const std::string path = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  auto& files = watch({path});
  const timespec times[2] = {{1, 5}, {1, 5}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  for (int i = 0; i < 3; ++i) files.look();
  EXPECT_EQ(readings_, 0);
  fs::rename(folder_.write("new", "1"), path);
  EXPECT_TRUE(is_read_again());
}

TEST_F(WatchedFilesTest, FilesThatChangeOneAfterTheOtherAreReadOnce) {
  const std::string a = folder_.write("a", "1"), b = folder_.write("b", "1");
  auto& files = watch({a, b});
  folder_.write("a", "22");
  files.look();
  folder_.write("b", "22");
  EXPECT_TRUE(is_read_again());
  files.look();
  EXPECT_EQ(readings_, 1);
}

TEST_F(WatchedFilesTest, AFailureIsToldOnceAndTriedAgain) {
  const std::string path = folder_.write("a", "1");
  auto& files = watch({path});
  answer_ = invalid_argument("line 3 is no key");
  folder_.write("a", "broken");
  EXPECT_TRUE(is_read_again());
  files.look();
  files.look();
  EXPECT_EQ(readings_, 3);
  EXPECT_THAT(told_, ElementsAre(HasSubstr("line 3")));
  answer_ = {};
  files.look();
  files.look();
  EXPECT_EQ(readings_, 4);
  EXPECT_THAT(told_, ElementsAre(HasSubstr("line 3"), "keys: "));
}

TEST_F(WatchedFilesTest, WhoAsksIsToldEachTime) {
  auto& files = watch({folder_.write("a", "1")});
  answer_ = invalid_argument("line 3 is no key");
  files.read_all();
  files.read_all();
  EXPECT_THAT(told_, ElementsAre(HasSubstr("line 3"), HasSubstr("line 3")));
  answer_ = {};
  folder_.write("a", "22");
  files.read_all();
  EXPECT_EQ(told_.size(), 3);
  files.look();
  files.look();
  EXPECT_EQ(readings_, 3) << "what was read by hand is not read again";
}

TEST(WatchedFilesThread, LooksByItself) {
  const testing::TempDir folder;
  const std::string path = folder.write("a", "1");
  std::mutex mutex;
  std::condition_variable changed;
  int readings = 0;
  WatchedFiles files({{"keys", {path}, [] { return Status(); }}});
  ASSERT_TRUE(files
                  .start([&](const std::string&, const Status&) {
                    const std::lock_guard lock(mutex);
                    ++readings;
                    changed.notify_all();
                  })
                  .ok());
  folder.write("a", "22");
  std::unique_lock lock(mutex);
  EXPECT_TRUE(changed.wait_for(lock, std::chrono::minutes(2), [&] { return readings == 1; }));
  lock.unlock();
  files.stop();
}

}  // namespace
}  // namespace choral::serve
