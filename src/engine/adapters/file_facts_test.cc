#include "engine/adapters/file_facts.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/temp_dir.h"

namespace choral::engine {
namespace {

namespace fs = std::filesystem;

class FileFactsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_.write("adapter_config.json", "{}");
    folder_.write("adapter_model.safetensors", "0123");
  }
  AdapterFacts settled() const {
    auto facts = look_at_adapter(folder_.path().string());
    wait_until_stamps_settle(facts);
    return facts;
  }
  AdapterFacts now() const { return look_at_adapter(folder_.path().string()); }

  testing::TempDir folder_;
};

TEST_F(FileFactsTest, AnyWriteIsSeen) {
  const fs::path tensors = folder_.path() / "adapter_model.safetensors";
  for (int round = 0; round < 20; ++round) {  // without a pause, and of one size
    const auto before = settled();
    EXPECT_EQ(before.size(), 2u);
    EXPECT_EQ(now(), before);
    folder_.write("adapter_model.safetensors", round % 2 == 0 ? "4567" : "0123");
    EXPECT_NE(now(), before);
  }
  auto before = settled();
  const auto time = fs::last_write_time(tensors);
  folder_.write("adapter_model.safetensors", "4567");
  fs::last_write_time(tensors, time);
  EXPECT_NE(now(), before) << "a modification time that was set back hides the change";

  before = settled();
  folder_.write("new", "89AB");
  EXPECT_EQ(now(), before) << "files that are no adapter's count";
  fs::rename(folder_.path() / "new", tensors);
  EXPECT_NE(now(), before);

  before = settled();
  fs::remove(folder_.path() / "adapter_config.json");
  EXPECT_NE(now(), before);
}

TEST_F(FileFactsTest, AGgufFileAloneOrInItsFolder) {
  const testing::TempDir other;
  const std::string file = other.write("a.gguf", "GGUF");
  auto before = look_at_adapter(file);
  EXPECT_EQ(before.size(), 1u);
  EXPECT_EQ(look_at_adapter(other.path().string()).size(), 1u);
  wait_until_stamps_settle(before);
  other.write("a.gguf", "GGUg");
  EXPECT_NE(look_at_adapter(file), before);
  EXPECT_TRUE(look_at_adapter(other / "missing").empty());
}

TEST_F(FileFactsTest, TheSameFilesOverALinkAreTheSame) {
  const testing::TempDir other;
  fs::create_directory_symlink(folder_.path(), other.path() / "link");
  EXPECT_EQ(look_at_adapter(other / "link"), now());
}

}  // namespace
}  // namespace choral::engine
