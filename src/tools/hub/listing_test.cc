#include "tools/hub/listing.h"

#include <fmt/core.h>
#include <gmock/gmock.h>

namespace choral::tools {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kSha1(40, 'a'), kSha256(64, 'b');

std::string small(const std::string& name) { return fmt::format(R"({{"rfilename":"{}","size":10,"blobId":"{}"}})", name, kSha1); }
std::string large(const std::string& name) {
  return fmt::format(R"({{"rfilename":"{}","size":99,"blobId":"{}","lfs":{{"sha256":"{}","size":5000,"pointerSize":99}}}})", name,
                     kSha1, kSha256);
}

Result<HubListing> listing_of(const std::vector<std::string>& files) {
  std::string json = fmt::format(R"({{"id":"org/name","sha":"{}","siblings":[)", kSha1);
  for (size_t i = 0; i < files.size(); ++i) json += (i > 0 ? "," : "") + files[i];
  return read_listing(json + "]}");
}

std::vector<std::string> wanted(const std::vector<std::string>& files, const std::vector<std::string>& names = {}) {
  const auto chosen = wanted_files(*listing_of(files), names);
  EXPECT_TRUE(chosen.ok()) << chosen.status().to_string();
  std::vector<std::string> out;
  if (chosen.ok()) {
    for (const auto& file : *chosen) out.push_back(file.name);
  }
  return out;
}

Status refusal(const std::vector<std::string>& files, const std::vector<std::string>& names = {}) {
  return wanted_files(*listing_of(files), names).status();
}

TEST(HubListing, HasSizesAndHashes) {
  const auto listing = listing_of({small("config.json"), large("model.safetensors")});
  ASSERT_TRUE(listing.ok()) << listing.status().to_string();
  EXPECT_EQ(listing->commit, kSha1);
  EXPECT_EQ(listing->files[0].hash, kSha1);
  EXPECT_EQ(listing->files[0].size_bytes, 10);
  EXPECT_EQ(listing->files[1].hash, kSha256) << "git's blob of a large file is its pointer";
  EXPECT_EQ(listing->files[1].size_bytes, 5000);
}

TEST(HubListing, NamesThatLeaveTheFolderAreRefused) {
  for (const char* bad : {"..", "../x", "a/../../x", "/etc/passwd", "a//b", "./a", "a/", "", "a\\\\b", "a\\u0000b", "a\\nb"})
    EXPECT_EQ(listing_of({small(bad)}).status().code(), Code::kCorrupt) << bad;
  EXPECT_EQ(listing_of({small(std::string(1001, 'a'))}).status().code(), Code::kCorrupt);
  EXPECT_TRUE(listing_of({small("a/b/c..d")}).ok());
}

TEST(HubListing, WhatIsNoListingIsSaidToBeNone) {
  for (const char* bad : {"[]", "{}", "<html>", R"({"sha":"main","siblings":[]})", R"({"sha":7})"})
    EXPECT_FALSE(read_listing(bad).ok()) << bad;
  for (const char* bad : {R"({"rfilename":"a"})", R"({"rfilename":"a","size":-1,"blobId":"x"})", "7",
                          R"({"rfilename":"a","size":1,"blobId":"../../../../../../../../etc/passwd-aaaaaaaa"})"})
    EXPECT_EQ(listing_of({bad}).status().code(), Code::kCorrupt) << bad;
}

TEST(WantedFiles, AreThoseThatAreRead) {
  EXPECT_THAT(wanted({small("README.md"), small("config.json"), large("model-1.safetensors"), large("pytorch_model.bin"),
                      small("tokenizer.json"), large("consolidated.safetensors"), large("onnx/model.onnx"), large("m.gguf"),
                      small("1_Pooling/config.json"), small("original/params.json")}),
              ElementsAre("config.json", "model-1.safetensors", "tokenizer.json", "1_Pooling/config.json"));
  EXPECT_THAT(
      wanted({small("adapter_config.json"), large("adapter_model.bin"), large("adapter_model.safetensors"),
              large("new_embeddings.safetensors"), large("optimizer.pt"), small("tokenizer_config.json")}),
      ElementsAre("adapter_config.json", "adapter_model.safetensors", "new_embeddings.safetensors", "tokenizer_config.json"));
  EXPECT_THAT(wanted({small("config.json"), large("m.Q4_K_M.gguf"), large("mmproj-m.gguf")}), ElementsAre("m.Q4_K_M.gguf"));
}

TEST(WantedFiles, OfASplitModelAreAll) {
  const std::vector<std::string> files{large("Q8_0/m-00001-of-00002.gguf"), large("Q8_0/m-00002-of-00002.gguf"),
                                       large("Q4_K_M/m-00001-of-00002.gguf"), large("Q4_K_M/m-00002-of-00002.gguf"),
                                       small("README.md")};
  const auto of_q8 = ElementsAre("Q8_0/m-00001-of-00002.gguf", "Q8_0/m-00002-of-00002.gguf");
  EXPECT_THAT(wanted(files, {"q8_0"}), of_q8);
  EXPECT_THAT(wanted(files, {"Q8_0/m-00002-of-00002.gguf", "Q8_0/m-00001-of-00002.gguf"}), of_q8);
  EXPECT_THAT(wanted({files[0], files[1], files[4]}), of_q8);
  EXPECT_THAT(refusal(files).message(), HasSubstr("4 GGUF files"));
  EXPECT_THAT(refusal(files, {"00001"}).message(), HasSubstr("stands in 2 files"));
}

TEST(WantedFiles, GgufIsChosenByAPartOfItsName) {
  const std::vector<std::string> files{large("m.Q4_0.gguf"), large("m.Q4_K_M.gguf"), large("m.Q8_0.gguf"), small("README.md")};
  EXPECT_THAT(refusal(files).message(),
              AllOf(HasSubstr("3 GGUF files"), HasSubstr("--file"), HasSubstr("m.Q8_0.gguf (4.9 KiB)")));
  EXPECT_THAT(wanted(files, {"q4_k_m"}), ElementsAre("m.Q4_K_M.gguf"));
  EXPECT_THAT(wanted(files, {"README.md", "m.Q8_0.gguf"}), ElementsAre("README.md", "m.Q8_0.gguf"));
  EXPECT_EQ(refusal(files, {"Q4"}).code(), Code::kInvalidArgument);
  const Status missing = refusal(files, {"REDME.md"});
  EXPECT_EQ(missing.code(), Code::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr("'README.md'"));
  EXPECT_EQ(refusal({small("README.md"), large("pytorch_model.bin")}).code(), Code::kUnsupported);
}

}  // namespace
}  // namespace choral::tools
