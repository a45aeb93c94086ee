// Files of sections: what is written is read; what is cut, damaged or of something else is refused; and nothing is left of a file
// that could not be written.
#include "io/section_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/checksum.h"
#include "support/temp_dir.h"

namespace choral::io {
namespace {

using ::testing::HasSubstr;

namespace fs = std::filesystem;

const SectionFileId kId{.version = 3, .digest = {1, 2, 3}};

std::vector<std::byte> bytes_of(size_t count, uint32_t seed) {
  std::vector<std::byte> bytes(count);
  for (auto& byte : bytes) {
    seed = seed * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(seed >> 24);
  }
  return bytes;
}

class SectionFileTest : public ::testing::Test {
 protected:
  // Of all sizes, one longer than a piece that has a checksum of its own.
  SectionFileTest() {
    size_t size = 1;
    for (const size_t count : {size_t{0}, size_t{1}, size_t{4096}, size_t{9} << 20, size_t{5000}}) {
      contents_.push_back(bytes_of(count, static_cast<uint32_t>(++size)));
    }
    for (size_t i = 0; i < contents_.size(); ++i) {
      sections_.push_back({{.name = fmt::format("section {}", i), .text = i % 2 == 0 ? "" : "odd", .facts = {}}, contents_[i]});
      for (size_t f = 0; f < i; ++f) sections_.back().facts.push_back(static_cast<int64_t>(f) - 2);
    }
  }

  Status write() { return write_section_file(path_, kId, sections_, pool_); }
  Result<std::shared_ptr<const SectionFile>> open() { return SectionFile::open(path_, kId, pool_); }
  std::string refusal() {
    const auto opened = open();
    EXPECT_FALSE(opened.ok());
    return opened.ok() ? std::string() : opened.status().message();
  }
  void overwrite(uint64_t offset, const void* bytes, size_t count) const {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset));
    file.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(count));
  }
  void flip(uint64_t offset) const {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const auto byte = static_cast<char>(file.get() ^ 0x40);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(byte);
  }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()));
  }

  choral::testing::TempDir folder_;
  fs::path path_ = folder_.path() / "file";
  ThreadPool pool_{2};
  std::vector<std::vector<std::byte>> contents_;
  std::vector<Section> sections_;
};

TEST_F(SectionFileTest, WhatIsWrittenIsRead) {
  ASSERT_TRUE(write().ok());
  EXPECT_EQ(files(), 1u);
  struct stat facts {};
  ASSERT_EQ(::stat(path_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  const auto file = open();
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->size_bytes(), section_file_bytes(sections_));
  ASSERT_EQ((*file)->sections().size(), sections_.size());
  for (size_t i = 0; i < sections_.size(); ++i) {
    const Section &wrote = sections_[i], &read = (*file)->sections()[i];
    EXPECT_EQ(read.name, wrote.name);
    EXPECT_EQ(read.text, wrote.text);
    EXPECT_EQ(read.facts, wrote.facts);
    ASSERT_EQ(read.bytes.size(), wrote.bytes.size());
    EXPECT_EQ(std::memcmp(read.bytes.data(), wrote.bytes.data(), read.bytes.size()), 0);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(read.bytes.data()) % 4096, 0u);
  }
  EXPECT_TRUE((*file)->check_unchanged().ok());
}

TEST_F(SectionFileTest, NoSectionsAreAFileToo) {
  sections_.clear();
  ASSERT_TRUE(write().ok());
  const auto file = open();
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_TRUE((*file)->sections().empty());
}

TEST_F(SectionFileTest, OneThatIsNotThereIsNotFound) { EXPECT_EQ(open().status().code(), Code::kNotFound); }

TEST_F(SectionFileTest, OneThatIsCutIsRefused) {
  ASSERT_TRUE(write().ok());
  for (uint64_t size :
       {fs::file_size(path_) - 1, uint64_t{3} << 20, uint64_t{2} << 20, uint64_t{500}, uint64_t{127}, uint64_t{0}}) {
    fs::resize_file(path_, size);
    EXPECT_FALSE(open().ok()) << size;
  }
}

TEST_F(SectionFileTest, OneThatIsLongerIsRefused) {
  ASSERT_TRUE(write().ok());
  fs::resize_file(path_, fs::file_size(path_) + 4096);
  EXPECT_THAT(refusal(), HasSubstr("bytes, not"));
}

TEST_F(SectionFileTest, EveryByteIsUnderAChecksum) {
  ASSERT_TRUE(write().ok());
  const uint64_t size = fs::file_size(path_);
  std::vector<uint64_t> places;
  for (uint64_t at = 0; at < 128; ++at) places.push_back(at);
  for (uint64_t at = 128; at < 1024; at += 13) places.push_back(at);
  for (uint64_t at = 1024; at < size; at += size / 23) places.push_back(at);
  places.push_back(size - 1);
  for (const uint64_t at : places) {
    flip(at);
    EXPECT_FALSE(open().ok()) << at;
    flip(at);
  }
  EXPECT_TRUE(open().ok());
}

TEST_F(SectionFileTest, AnotherContentVersionOrByteOrderIsRefused) {
  ASSERT_TRUE(write().ok());
  EXPECT_THAT(SectionFile::open(path_, {.version = 4, .digest = kId.digest}, pool_).status().message(), HasSubstr("version 3"));
  EXPECT_THAT(SectionFile::open(path_, {.version = 3, .digest = {9}}, pool_).status().message(), HasSubstr("something else"));
  const uint32_t swapped = 0x04030201;
  overwrite(8, &swapped, sizeof swapped);
  EXPECT_THAT(refusal(), HasSubstr("byte order"));
}

TEST_F(SectionFileTest, OneThatOthersMayWriteIsNotRead) {
  ASSERT_TRUE(write().ok());
  for (const auto perms : {fs::perms::group_write, fs::perms::others_write}) {
    fs::permissions(path_, perms, fs::perm_options::add);
    EXPECT_EQ(open().status().code(), Code::kPermissionDenied);
    fs::permissions(path_, perms, fs::perm_options::remove);
  }
  EXPECT_TRUE(open().ok());
}

TEST_F(SectionFileTest, OneThatIsWrittenToLaterIsNoticed) {
  ASSERT_TRUE(write().ok());
  const auto file = open();
  ASSERT_TRUE(file.ok());
  fs::resize_file(path_, 4096);
  EXPECT_EQ((*file)->check_unchanged().code(), Code::kUnavailable);
}

TEST_F(SectionFileTest, OneThatIsReplacedStaysWhatItWas) {
  ASSERT_TRUE(write().ok());
  const auto file = open();
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(write().ok());
  fs::remove(path_);
  EXPECT_TRUE((*file)->check_unchanged().ok());
  EXPECT_EQ(std::memcmp((*file)->sections()[3].bytes.data(), contents_[3].data(), contents_[3].size()), 0);
}

TEST_F(SectionFileTest, TwoMayWriteItAtOnce) {
  Status other;
  std::thread thread([&] {
    ThreadPool pool(1);
    other = write_section_file(path_, kId, sections_, pool);
  });
  EXPECT_TRUE(write().ok());
  thread.join();
  EXPECT_TRUE(other.ok());
  EXPECT_TRUE(open().ok());
  EXPECT_EQ(files(), 1u);
}

TEST_F(SectionFileTest, OfOneThatCannotBeWrittenNothingStays) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 4 << 20, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = write();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(files(), 0u);
  path_ = folder_.path() / "no" / "such" / "folder";
  EXPECT_FALSE(write().ok());
}

}  // namespace
}  // namespace choral::io
