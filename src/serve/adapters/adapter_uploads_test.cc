#include "serve/adapters/adapter_uploads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

namespace choral::serve {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr const char *kConfigName = "adapter_config.json", *kWeightsName = "adapter_model.safetensors";

class AdapterUploadsTest : public ::testing::Test {
 protected:
  AdapterUploadsTest() {
    fs::remove_all(state_);
    fs::create_directories(state_);
  }
  ~AdapterUploadsTest() override { fs::remove_all(state_); }

  std::unique_ptr<AdapterUploads> open(int64_t bytes = 100) const {
    auto uploads = AdapterUploads::open(state_.string(), {.bytes = bytes, .under_way = 2, .clock = [this] { return now_; }});
    CHORAL_CHECK(uploads.ok(), "the state directory is there");
    return *std::move(uploads);
  }
  fs::path folder() const { return fs::canonical(state_) / AdapterUploads::kFolderName; }
  static int64_t entries(const fs::path& folder) { return std::distance(fs::directory_iterator(folder), {}); }
  static std::vector<SentFile> pair(int64_t config, int64_t weights) {
    return {{.name = kConfigName, .bytes = config}, {.name = kWeightsName, .bytes = weights}};
  }
  static std::string text_of(const fs::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const fs::path state_ = fs::path(::testing::TempDir()) / "choral_uploads";
  std::chrono::steady_clock::time_point now_{};
};

TEST_F(AdapterUploadsTest, FilesComeInPiecesAndAreThereWhenTheyAreWhole) {
  const auto uploads = open();
  const std::string id = *uploads->begin(pair(2, 5));
  EXPECT_EQ(uploads->held_bytes(), 7);
  ASSERT_TRUE(uploads->write(id, kWeightsName, 0, "abc").ok());
  EXPECT_THAT(uploads->finish(id).status().message(), HasSubstr("0 of 2 bytes"));
  ASSERT_TRUE(uploads->write(id, kConfigName, 0, "{}").ok());
  EXPECT_THAT(uploads->finish(id).status().message(), HasSubstr("3 of 5 bytes"));
  EXPECT_EQ(uploads->write(id, kWeightsName, 3, "de")->received, 5);
  const auto place = uploads->finish(id);
  ASSERT_TRUE(place.ok()) << place.status().to_string();
  EXPECT_EQ(fs::path(*place).parent_path(), folder());
  EXPECT_EQ(text_of(fs::path(*place) / kWeightsName), "abcde");
  EXPECT_EQ(text_of(fs::path(*place) / kConfigName), "{}");
  struct stat facts {};
  ASSERT_EQ(::stat((fs::path(*place) / kWeightsName).c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600);
  ASSERT_EQ(::stat(place->c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0700);
  EXPECT_EQ(uploads->finish(id).status().code(), Code::kNotFound);
  EXPECT_FALSE(uploads->drop(id)) << "it is under way no more";
  EXPECT_TRUE(uploads->has(*place));
  ASSERT_TRUE(uploads->remove(*place).ok());
  EXPECT_EQ(uploads->held_bytes(), 0);
  EXPECT_EQ(entries(folder()), 0);
}

TEST_F(AdapterUploadsTest, PiecesComeInOrderAndLeadNowhereElse) {
  const auto uploads = open();
  const std::string id = *uploads->begin(pair(2, 5));
  EXPECT_EQ(uploads->write(id, kWeightsName, 1, "a").status().code(), Code::kAlreadyExists);
  ASSERT_TRUE(uploads->write(id, kWeightsName, 0, "ab").ok());
  EXPECT_EQ(uploads->write(id, kWeightsName, 0, "ab").status().code(), Code::kAlreadyExists);
  EXPECT_EQ(uploads->write(id, kWeightsName, 2, "cdef").status().code(), Code::kTooLarge);
  for (const char* name : {"", "new_embeddings.safetensors", "../adapter_config.json", "/etc/passwd", "adapter_config.json/"})
    EXPECT_EQ(uploads->write(id, name, 0, "x").status().code(), Code::kNotFound) << name;
  for (const std::string& other : {std::string(), std::string(".."), id + ".part", id + "/..", std::string("upload_")})
    EXPECT_EQ(uploads->write(other, kConfigName, 0, "x").status().code(), Code::kNotFound) << other;
  EXPECT_EQ(uploads->write(id, kWeightsName, 2, "")->received, 2);
}

TEST_F(AdapterUploadsTest, OnlyAnAdaptersFilesAreTaken) {
  const auto uploads = open();
  for (const auto& [files, why] : std::vector<std::pair<std::vector<SentFile>, const char*>>{
           {{}, "0 files"},
           {{{.name = kWeightsName, .bytes = 5}}, "save_pretrained"},
           {{{.name = kConfigName, .bytes = 5}}, "save_pretrained"},
           {{{.name = "adapter_model.gguf", .bytes = 5}, {.name = kConfigName, .bytes = 5}}, "alone"},
           {{{.name = "../x", .bytes = 5}}, "no file of an adapter"},
           {{{.name = "adapter_model.bin", .bytes = 5}, {.name = kConfigName, .bytes = 5}}, "no file of an adapter"},
           {{{.name = kWeightsName, .bytes = 5}, {.name = kConfigName, .bytes = 0}}, "0 bytes"},
           {{{.name = kWeightsName, .bytes = -5}, {.name = kConfigName, .bytes = 1}}, "-5 bytes"},
           {{{.name = kWeightsName, .bytes = 5}, {.name = kConfigName, .bytes = 5 << 20}}, "at most 4.0 MiB"},
           {{{.name = kWeightsName, .bytes = 5}, {.name = kWeightsName, .bytes = 5}, {.name = kConfigName, .bytes = 1}}, "twice"},
           {std::vector<SentFile>(9, {.name = kWeightsName, .bytes = 1}), "9 files"},
           {pair(1, INT64_MAX), "at most"},
       }) {
    const auto begun = uploads->begin(files);
    ASSERT_FALSE(begun.ok()) << why;
    EXPECT_THAT(begun.status().message(), HasSubstr(why));
  }
  EXPECT_EQ(uploads->held_bytes(), 0);
  EXPECT_TRUE(uploads->begin({{.name = "adapter_model.gguf", .bytes = 5}}).ok());
}

TEST_F(AdapterUploadsTest, WhatIsToComeIsHeldAgainstTheLimits) {
  const auto uploads = open(20);
  EXPECT_EQ(uploads->begin(pair(1, 20)).status().code(), Code::kTooLarge);
  const std::string id = *uploads->begin(pair(2, 10));
  EXPECT_EQ(uploads->begin(pair(1, 8)).status().code(), Code::kResourceExhausted);
  const std::string other = *uploads->begin(pair(1, 2));
  EXPECT_THAT(uploads->begin(pair(1, 2)).status().message(), HasSubstr("2 adapters are being sent"));
  EXPECT_TRUE(uploads->drop(id));
  EXPECT_FALSE(uploads->drop(id));
  EXPECT_EQ(entries(folder()), 1);
  now_ += std::chrono::seconds(599);
  ASSERT_TRUE(uploads->write(other, kConfigName, 0, "x").ok());
  now_ += std::chrono::seconds(599);
  ASSERT_TRUE(uploads->begin(pair(1, 1)).ok());
  now_ += std::chrono::seconds(1);
  ASSERT_TRUE(uploads->begin(pair(1, 17)).ok()) << "the other rested for too long";
  EXPECT_EQ(uploads->write(other, kWeightsName, 0, "x").status().code(), Code::kNotFound);
}

TEST_F(AdapterUploadsTest, AfterARestartWhatIsWantedIsThereAndNothingElse) {
  std::string kept, lost;
  {
    const auto uploads = open();
    for (auto* place : {&kept, &lost}) {
      const std::string id = *uploads->begin(pair(2, 5));
      ASSERT_TRUE(uploads->write(id, kConfigName, 0, "{}").ok() && uploads->write(id, kWeightsName, 0, "abcde").ok());
      *place = *uploads->finish(id);
    }
    ASSERT_TRUE(uploads->begin(pair(2, 5)).ok());
    fs::copy(lost, folder() / "upload_killed.part");  // what a server that was killed leaves
  }
  fs::create_directories(folder() / "somebody's");
  const auto uploads = open();
  ASSERT_TRUE(uploads->keep_only(std::vector<std::string>{kept, "/elsewhere"}).ok());
  EXPECT_EQ(uploads->held_bytes(), 7);
  EXPECT_TRUE(fs::exists(fs::path(kept) / kWeightsName));
  EXPECT_FALSE(fs::exists(lost));
  EXPECT_EQ(entries(folder()), 2);
}

TEST_F(AdapterUploadsTest, ALinkInItsPlaceIsRefused) {
  fs::create_directory_symlink("/", folder());
  EXPECT_THAT(AdapterUploads::open(state_.string(), {.bytes = 100}).status().message(), HasSubstr("is no folder"));
}

TEST_F(AdapterUploadsTest, RemovesNothingElse) {
  const auto uploads = open();
  for (const std::string& path : {std::string(), std::string("/"), folder().string(), (folder() / "upload_1/..").string(),
                                  (folder() / "other").string(), (folder() / "upload_1/adapter_config.json").string()}) {
    EXPECT_FALSE(uploads->has(path)) << path;
    EXPECT_FALSE(uploads->remove(path).ok()) << path;
  }
}

}  // namespace
}  // namespace choral::serve
