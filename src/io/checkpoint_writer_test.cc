#include "io/checkpoint_writer.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>

#include "io/checkpoint.h"
#include "support/temp_dir.h"

namespace choral::io {
namespace {

std::vector<TensorToCome> four_tensors() {
  return {{"a", DType::kF32, {4}}, {"b", DType::kI8, {2, 5}}, {"c", DType::kBF16, {100}}, {"d", DType::kF32, {3}}};
}

std::string bytes_of(const TensorToCome& tensor) { return std::string(static_cast<size_t>(tensor.size_bytes()), tensor.name[0]); }

Status append(CheckpointWriter& writer, const TensorToCome& tensor) {
  const std::string bytes = bytes_of(tensor);
  return writer.append(std::as_bytes(std::span(bytes)));
}

// The names of the files that there are afterwards.
std::vector<std::string> write(const std::filesystem::path& folder, int64_t max_shard_bytes) {
  const auto tensors = four_tensors();
  const auto writer = *CheckpointWriter::create(folder, tensors, max_shard_bytes);
  EXPECT_EQ(writer->total_bytes(), 16 + 10 + 200 + 12);
  for (const auto& tensor : tensors) EXPECT_TRUE(append(*writer, tensor).ok());
  EXPECT_TRUE(writer->finish().ok());
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  return names;
}

void expect_all(const std::filesystem::path& folder) {
  const auto checkpoint = Checkpoint::open(folder);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().to_string();
  ASSERT_EQ((*checkpoint)->names().size(), 4u);
  for (const auto& tensor : four_tensors()) {
    const auto view = (*checkpoint)->find(tensor.name)->view;
    EXPECT_EQ(view.dtype, tensor.dtype);
    EXPECT_EQ(view.shape, tensor.shape);
    EXPECT_EQ(std::memcmp(view.data, bytes_of(tensor).data(), bytes_of(tensor).size()), 0);
  }
}

TEST(CheckpointWriter, OneFileWhereItIsSmall) {
  const choral::testing::TempDir dir;
  EXPECT_THAT(write(dir.path(), 238), ::testing::UnorderedElementsAre("model.safetensors"));
  expect_all(dir.path());
}

TEST(CheckpointWriter, ShardsAndTheirIndexWhereItIsLarge) {
  const choral::testing::TempDir dir;  // a and b fit into one, c into none
  EXPECT_THAT(write(dir.path(), 26),
              ::testing::UnorderedElementsAre("model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                              "model-00003-of-00003.safetensors", "model.safetensors.index.json"));
  expect_all(dir.path());
}

TEST(CheckpointWriter, AnUnfinishedFileIsTakenAway) {
  const choral::testing::TempDir dir;
  {
    const auto writer = *CheckpointWriter::create(dir.path(), four_tensors());
    ASSERT_TRUE(append(*writer, four_tensors()[0]).ok());
    EXPECT_FALSE(std::filesystem::is_empty(dir.path()));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  const auto nowhere = *CheckpointWriter::create(dir.path() / "no", four_tensors());
  EXPECT_EQ(append(*nowhere, four_tensors()[0]).code(), Code::kNotFound);
}

// Also where the two would not meet in a file.
TEST(CheckpointWriter, ANameStandsOnce) {
  const choral::testing::TempDir dir;
  auto tensors = four_tensors();
  tensors.push_back(tensors.front());
  const auto writer = CheckpointWriter::create(dir.path(), tensors, 26);
  EXPECT_EQ(writer.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(writer.status().message()), ::testing::HasSubstr("tensor a stands twice"));
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

// /dev/full takes a file's bytes as a full disk does.
TEST(CheckpointWriter, WhatThereIsNoRoomForIsSaid) {
  const choral::testing::TempDir dir;
  const auto writer = *CheckpointWriter::create(dir.path(), {{"a", DType::kF32, {1 << 16}}});
  const std::string data(4 << 16, 'a');
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 1 << 16, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = writer->append(std::as_bytes(std::span(data)));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("ulimit -f"));
}

}  // namespace
}  // namespace choral::io
