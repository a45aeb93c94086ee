#include "output_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "support/temp_dir.h"

namespace choral::apps {
namespace {

using ::testing::HasSubstr;

class OutputFileTest : public ::testing::Test {
 protected:
  std::string path() const { return (folder_.path() / "out").string(); }
  void write(const std::string& text) const { std::ofstream(path()) << text; }
  std::string text() const {
    std::ostringstream out;
    out << std::ifstream(path()).rdbuf();
    return out.str();
  }
  std::unique_ptr<OutputFile> open(const std::string& name) const {
    auto made = OutputFile::create(name);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return std::move(made).value();
  }
  size_t files() const {
    const std::filesystem::directory_iterator entries(folder_.path());
    return static_cast<size_t>(std::distance(begin(entries), end(entries)));
  }

  testing::TempDir folder_;
};

TEST_F(OutputFileTest, IsThereWhenItIsWhole) {
  write("old\n");
  const auto out = open(path());
  EXPECT_TRUE(out->write_line("new").ok());
  EXPECT_EQ(text(), "old\n");
  EXPECT_TRUE(out->commit().ok());
  EXPECT_EQ(text(), "new\n");
  EXPECT_TRUE(out->commit().ok());
  EXPECT_EQ(text(), "new\n") << "once is enough";
  EXPECT_EQ(files(), 1u);
}

TEST_F(OutputFileTest, GoesOnWhereAStoppedOneWasKept) {
  write("old\n");
  std::string left;
  {
    const auto out = open(path());
    EXPECT_TRUE(out->write_line("one").ok());
    EXPECT_TRUE(out->write_piece("tw").ok());
    left = out->partial();
    EXPECT_TRUE(out->keep().ok());
  }
  EXPECT_EQ(text(), "old\n");
  const auto out = open(path());
  const auto found = out->resume();
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_TRUE(*found);
  EXPECT_EQ(out->partial(), left);
  EXPECT_TRUE(out->write_line("two").ok());
  const auto other = open(path());
  const auto taken = other->resume();
  ASSERT_TRUE(taken.ok());
  EXPECT_FALSE(*taken) << "somebody is at it";
  EXPECT_TRUE(out->commit().ok());
  EXPECT_EQ(text(), "one\ntwo\n");
  EXPECT_EQ(files(), 1u);
}

TEST_F(OutputFileTest, NothingToGoOnWith) {
  EXPECT_FALSE(*open(path())->resume());
  EXPECT_EQ(open("-")->resume().status().code(), Code::kInvalidArgument);
  EXPECT_EQ(files(), 0u);
}

TEST_F(OutputFileTest, WhatWasTidiedAwayIsNotMovedOverTheOldFile) {
  write("old\n");
  const auto out = open(path());
  EXPECT_TRUE(out->write_line("new").ok());
  out->remove_partial();
  for (int i = 0; i < 2; ++i) {
    const Status late = out->commit();
    EXPECT_EQ(late.code(), Code::kCancelled) << late.to_string();
    EXPECT_THAT(late.message(), HasSubstr("out was not written"));
  }
  EXPECT_EQ(text(), "old\n");
  EXPECT_EQ(files(), 1u);
}

TEST_F(OutputFileTest, WritesBehindWhatAnInheritedFileHolds) {
  write("old\n");
  for (const int mode : {O_WRONLY, O_RDWR}) {
    const int descriptor = ::open(path().c_str(), mode | O_APPEND | O_CLOEXEC);
    const auto out = open(fmt::format("/dev/fd/{}", descriptor));
    EXPECT_TRUE(out->is_direct());
    EXPECT_TRUE(out->writes_into(descriptor));
    EXPECT_FALSE(out->writes_into(STDIN_FILENO));
    EXPECT_TRUE(out->write_line("new").ok() && out->commit().ok());
    ::close(descriptor);
  }
  EXPECT_EQ(text(), "old\nnew\nnew\n");
  EXPECT_EQ(files(), 1u);
}

TEST_F(OutputFileTest, ReplacesAFileThatIsOnlyRead) {
  write("old\n");
  const int descriptor = ::open(path().c_str(), O_RDONLY | O_CLOEXEC);
  const auto out = open(path());
  EXPECT_FALSE(out->is_direct() || out->writes_into(descriptor));
  EXPECT_TRUE(out->write_line("new").ok() && out->commit().ok());
  ::close(descriptor);
  EXPECT_EQ(text(), "new\n");
}

}  // namespace
}  // namespace choral::apps
