// Files that are cut, written to and replaced while they are read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "io/checkpoint.h"
#include "io/mapped_file.h"
#include "io/read_file.h"
#include "io/test_files.h"
#include "support/temp_dir.h"

namespace choral::io {
namespace {

using choral::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

constexpr size_t kPages = 64, kPage = 4096;

// A file written an hour ago: a change now has another time, however coarse the file system's clock is.
std::string old_file(const TempDir& folder, const std::string& name, const std::string& content) {
  const std::string path = folder.write(name, content);
  fs::last_write_time(path, fs::last_write_time(path) - std::chrono::hours(1));
  return path;
}

std::string old_file(const TempDir& folder) { return old_file(folder, "f", std::string(kPages * kPage, 'x')); }

void expect_changed(const Status& status, const std::string& path) {
  EXPECT_EQ(status.code(), Code::kUnavailable) << status.to_string();
  EXPECT_THAT(status.message(), AllOf(HasSubstr(path), HasSubstr("changed while it was read"), HasSubstr("renaming")));
}

size_t count_of(std::span<const std::byte> bytes, char value) {
  return static_cast<size_t>(std::count(bytes.begin(), bytes.end(), static_cast<std::byte>(value)));
}

TEST(ChangedFile, ACutMappingReadsAsZerosAndSaysSo) {
  const TempDir folder;
  const std::string path = old_file(folder);
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_TRUE((*file)->check_unchanged().ok());
  fs::resize_file(path, 3 * kPage);
  const auto bytes = (*file)->bytes();
  EXPECT_EQ(bytes[10 * kPage], std::byte{0});
  EXPECT_EQ(count_of(bytes.first(3 * kPage), 'x'), 3 * kPage);
  EXPECT_EQ(count_of(bytes.subspan(10 * kPage), '\0'), (kPages - 10) * kPage);
  EXPECT_EQ(count_of(bytes.subspan(3 * kPage), '\0'), (kPages - 3) * kPage);
  (*file)->release(bytes);
  expect_changed((*file)->check_unchanged(), path);
  // Even when the file looks as before.
  fs::resize_file(path, kPages * kPage);
  fs::last_write_time(path, fs::last_write_time(path) - std::chrono::hours(1));
  expect_changed((*file)->check_unchanged(), path);
}

TEST(ChangedFile, AMappingMayBeCutUnderManyThreads) {
  const TempDir folder;
  const std::string path = old_file(folder), other_path = old_file(folder, "other", "whole");
  const auto file = MappedFile::open(path), other = MappedFile::open(other_path);
  ASSERT_TRUE(file.ok() && other.ok());
  fs::resize_file(path, 0);
  std::vector<std::thread> readers;
  std::vector<size_t> zeros(4);
  for (size_t t = 0; t < zeros.size(); ++t) {
    readers.emplace_back([&, t] { zeros[t] = count_of((*file)->bytes(), '\0'); });
  }
  for (auto& reader : readers) reader.join();
  for (const size_t count : zeros) EXPECT_EQ(count, kPages * kPage);
  expect_changed((*file)->check_unchanged(), path);
  EXPECT_TRUE((*other)->check_unchanged().ok());
}

TEST(ChangedFile, WritingInPlaceIsSeenAndReplacingIsHarmless) {
  const TempDir folder;
  const std::string path = old_file(folder);
  const auto written = MappedFile::open(path);
  ASSERT_TRUE(written.ok());
  folder.write("f", std::string(kPages * kPage, 'y'));
  expect_changed((*written)->check_unchanged(), path);

  const auto replaced = MappedFile::open(path);
  ASSERT_TRUE(replaced.ok());
  fs::rename(folder.write("new", "z"), path);
  EXPECT_TRUE((*replaced)->check_unchanged().ok()) << (*replaced)->check_unchanged().message();
  fs::remove(path);
  EXPECT_TRUE((*replaced)->check_unchanged().ok());
  EXPECT_EQ(count_of((*replaced)->bytes(), 'y'), kPages * kPage);
}

// The address of a page of a file that it does not have: mapped without a guard.
const volatile char* lost_page(const std::string& path) {
  const auto file = RegularFile::open(path);
  auto* page = static_cast<char*>(::mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE, file->descriptor(), 0));
  fs::resize_file(path, 0);
  return page;
}

TEST(ChangedFileDeathTest, OtherFaultsAreAsTheyWere) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process in which nobody has opened a file yet
  const TempDir folder;
  const std::string path = folder.write("f", std::string(kPage, 'x')), good = folder.write("g", "good");
  EXPECT_DEATH(
      {
        const auto guarded = MappedFile::open(good);
        const volatile char* page = lost_page(path);
        ::_exit(page[0]);
      },
      "");
  EXPECT_DEATH(
      {
        const auto guarded = MappedFile::open(good);
        ::raise(SIGBUS);
        ::_exit(0);
      },
      "");
}

TEST(ChangedFileDeathTest, AHandlerThatWasThereIsStillCalled) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const TempDir folder;
  const std::string path = folder.write("f", std::string(kPage, 'x')), cut = folder.write("g", std::string(kPage, 'x'));
  EXPECT_EXIT(
      {
        struct sigaction own {};
        own.sa_handler = [](int) { ::_exit(42); };
        ::sigaction(SIGBUS, &own, nullptr);
        const auto guarded = MappedFile::open(cut);
        fs::resize_file(cut, 0);
        if ((*guarded)->bytes()[0] != std::byte{0}) ::_exit(1);  // ours: not handed on
        const volatile char* page = lost_page(path);
        ::_exit(page[0]);
      },
      ::testing::ExitedWithCode(42), "");
}

TEST(ReadFile, KeepsItsBytesWhateverBecomesOfTheFile) {
  const TempDir folder;
  const std::string path = old_file(folder);
  ReadMemory memory(1 << 20);
  const auto file = read_file(path, 1 << 20, memory);
  ASSERT_TRUE(file.ok()) << file.status().message();
  folder.write("f", std::string(kPages * kPage, 'y'));
  fs::resize_file(path, 0);
  EXPECT_EQ(count_of((*file)->bytes(), 'x'), kPages * kPage);
  EXPECT_EQ((*file)->bytes().size(), kPages * kPage);
  EXPECT_TRUE((*file)->check_unchanged().ok()) << "what was read is one content";
  EXPECT_EQ((*file)->path(), path);
}

TEST(ReadFile, WhoWritesMeanwhileIsSeen) {
  const TempDir folder;
  ReadMemory memory(0);
  for (const std::string& now : {std::string(kPages * kPage, 'y'), std::string("short"), std::string(kPages * kPage + 1, 'y')}) {
    const std::string path = old_file(folder);
    auto open = RegularFile::open(path);
    ASSERT_TRUE(open.ok());
    folder.write("f", now);
    expect_changed(read_file(*open, 1 << 20, memory).status(), path);
    EXPECT_EQ((*read_file(path, 1 << 20, memory))->bytes().size(), now.size());
  }
}

TEST(ReadFile, KeepsItsLimits) {
  const TempDir folder;
  const std::string path = folder.write("f", "12345");
  ReadMemory memory(0);
  EXPECT_EQ((*read_file(path, 5, memory))->bytes().size(), 5u);
  const Status refused = read_file(path, 4, memory).status();
  EXPECT_EQ(refused.code(), Code::kTooLarge);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr(path), HasSubstr("5 bytes"), HasSubstr("4 are allowed")));
  EXPECT_EQ(read_file(folder / "absent", 5, memory).status().code(), Code::kNotFound);
  EXPECT_EQ(read_file(folder.path(), 5, memory).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE((*read_file(folder.write("empty", ""), 5, memory))->bytes().empty());
}

TEST(ReadFile, MemoryIsUsedAgainOnceNobodyHoldsIt) {
  ReadMemory memory(kPage);
  auto first = *memory.take(kPage);
  const AlignedBuffer* kept = first.get();
  EXPECT_NE((*memory.take(10)).get(), kept) << "the first is still held";
  first = *memory.take(kPage);
  kept = first.get();
  first = nullptr;
  EXPECT_EQ((*memory.take(10)).get(), kept);
  EXPECT_GT((*memory.take(2 * kPage))->size_bytes(), kPage);
  EXPECT_EQ((*memory.take(kPage)).get(), kept) << "what is larger than may be kept takes nothing's place";
}

TEST(ChangedFile, ACheckpointSaysWhichShardChanged) {
  const TempDir folder;
  const std::string header = R"({"w":{"dtype":"U8","shape":[4096],"data_offsets":[0,4096]}})";
  const std::string content = testing::safetensors_file(header, std::string(4096, 'w'));
  const std::string path = old_file(folder, "model.safetensors", content);
  const auto checkpoint = Checkpoint::open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_TRUE((*checkpoint)->check_unchanged().ok());
  fs::resize_file(path, 100);
  const auto tensor = (*checkpoint)->find("w");
  ASSERT_TRUE(tensor.ok());
  EXPECT_EQ(tensor->view.data[4095], std::byte{0});
  expect_changed((*checkpoint)->check_unchanged(), path);
}

}  // namespace
}  // namespace choral::io
