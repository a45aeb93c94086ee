#include "serve/catalogue/catalogue.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace choral::serve {
namespace {

using ::testing::HasSubstr;

const std::string kHash(64, 'a');

std::string with_adapter(const std::string& entry, const std::string& name = "sql") {
  return fmt::format(R"({{"version": 1, "adapters": {{"{}": {}}}}})", name, entry);
}

TEST(Catalogue, SaysNamesFoldersAndContents) {
  const auto read = read_catalogue(fmt::format(
      R"({{"version": 1, "adapters": {{"sql": {{"digest": "{0}"}}, "team/poet": {{"path": ".contents/content_1", "digest": "{0}",)"
      R"( "files": {{"adapter_config.json": {{"bytes": 7, "sha256": "{0}"}}, "adapter_model.safetensors": {{"bytes": 9, "sha256": "{0}"}}}}}}}}}})",
      kHash));
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->adapters.size(), 2u);
  EXPECT_EQ(read->adapters.at("sql"), (CataloguedAdapter{.digest = kHash, .path = "sql"}));
  const auto& poet = read->adapters.at("team/poet");
  EXPECT_EQ(poet.path, ".contents/content_1");
  EXPECT_EQ(poet.files.at("adapter_model.safetensors"), (CataloguedFile{.bytes = 9, .sha256 = kHash}));
  const auto again = read_catalogue(catalogue_text(*read));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->adapters, read->adapters);
  EXPECT_TRUE(read_catalogue(catalogue_text({})).ok());
}

TEST(Catalogue, WhatIsNoneIsRefusedWithWhatIsWrong) {
  const auto says = [](const std::string& text) { return read_catalogue(text).status().message(); };
  EXPECT_THAT(says(R"({"adapters": {}})"), HasSubstr("version"));
  EXPECT_THAT(says(R"({"version": 2, "adapters": {}})"), HasSubstr("knows 1"));
  EXPECT_THAT(says(R"({"version": 1, "adapter": {}})"), HasSubstr("'adapter'"));
  EXPECT_THAT(says(R"({"version": 1, "adapters": []})"), HasSubstr("'adapters'"));
  EXPECT_THAT(says("{"), HasSubstr("JSON"));
  EXPECT_THAT(says(with_adapter("{}")), HasSubstr("neither 'digest' nor 'files'"));
  EXPECT_THAT(says(with_adapter(R"({"digest": "abc"})")), HasSubstr("SHA-256"));
  EXPECT_THAT(says(with_adapter(R"({"digest": ")" + std::string(64, 'A') + "\"}")), HasSubstr("SHA-256"));
  EXPECT_THAT(says(with_adapter(fmt::format(R"({{"digest": "{}", "url": "http://x"}})", kHash))), HasSubstr("'url'"));
  EXPECT_THAT(says(with_adapter(fmt::format(R"({{"digest": "{}"}})", kHash), "../sql")), HasSubstr("adapter '../sql'"));
  EXPECT_THAT(says(with_adapter(fmt::format(R"({{"digest": "{}"}})", kHash), "base")), HasSubstr("base"));
  for (const char* path : {"/etc", "../x", "a/../../x", "a//b", "a/", "./a", "a\\u0000b"})
    EXPECT_THAT(says(with_adapter(fmt::format(R"({{"digest": "{}", "path": "{}"}})", kHash, path))), HasSubstr("'path'")) << path;
  const auto with_file = [&](const std::string& name, const std::string& file) {
    return with_adapter(fmt::format(R"({{"files": {{"{}": {}}}}})", name, file));
  };
  const std::string good = fmt::format(R"({{"bytes": 7, "sha256": "{}"}})", kHash);
  EXPECT_TRUE(read_catalogue(with_file("adapter_model.gguf", good)).ok());
  EXPECT_THAT(says(with_file("adapter_model.bin", good)), HasSubstr("adapter_model.bin"));
  EXPECT_THAT(says(with_file("../adapter_model.gguf", good)), HasSubstr("no file of an adapter"));
  EXPECT_THAT(says(with_file("adapter_model.safetensors", good)), HasSubstr("adapter_config.json"));
  EXPECT_THAT(says(with_file("adapter_model.gguf", R"({"bytes": 7})")), HasSubstr("'sha256'"));
  EXPECT_THAT(says(with_file("adapter_model.gguf", fmt::format(R"({{"bytes": -7, "sha256": "{}"}})", kHash))), HasSubstr("-7"));
  EXPECT_THAT(says(with_file("adapter_model.gguf", fmt::format(R"({{"sha256": "{}", "url": ""}})", kHash))), HasSubstr("'url'"));
  EXPECT_EQ(read_catalogue(std::string(Catalogue::kMostBytes + 1, ' ')).status().code(), Code::kTooLarge);
}

}  // namespace
}  // namespace choral::serve
