#include "text/fill_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

namespace choral::text {
namespace {

GgufTokenizerData data_with(std::vector<std::string> tokens) {
  GgufTokenizerData data;
  data.model = "gpt2";
  data.pre = "smollm";
  data.tokens = {"a", "b", "ab"};
  data.token_types = {1, 1, 1};
  data.merges = {"a b"};
  for (auto& token : tokens) {
    data.tokens.push_back(std::move(token));
    data.token_types.push_back(3);
  }
  return data;
}

FillTokens found(const GgufTokenizerData& data) {
  const auto tokenizer = Tokenizer::from_gguf(data);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  return tokenizer.ok() ? fill_tokens(**tokenizer) : FillTokens();
}

TEST(FillTokensOf, KnowsFamiliesByWhatTheyWrite) {
  const FillTokens qwen =
      found(data_with({"<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"}));
  EXPECT_EQ(qwen.prefix, 3);
  EXPECT_EQ(qwen.suffix, 5);
  EXPECT_EQ(qwen.middle, 4);
  EXPECT_EQ(qwen.pad, 6);
  EXPECT_EQ(qwen.repository, 7);
  EXPECT_EQ(qwen.file, 8);
  const FillTokens deepseek = found(data_with({"<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>"}));
  EXPECT_EQ(deepseek.prefix, 4);
  EXPECT_EQ(deepseek.suffix, 3);
  EXPECT_EQ(deepseek.middle, 5);
  EXPECT_EQ(deepseek.file, std::nullopt);
  EXPECT_EQ(found(data_with({})).prefix, std::nullopt);
}

TEST(FillTokensOf, GgufsKeysGoFirst) {
  GgufTokenizerData data = data_with({"<|fim_prefix|>", "<begin>", "<gap>", "<end>"});
  data.fill_ids = {{"fim_pre", 4}, {"fim_suf", 5}, {"fim_mid", 6}};
  const FillTokens tokens = found(data);
  EXPECT_EQ(tokens.prefix, 4);
  EXPECT_EQ(tokens.suffix, 5);
  EXPECT_EQ(tokens.middle, 6);
  for (const int64_t id : {int64_t{-1}, int64_t{7}, int64_t{1} << 40}) {
    data.fill_ids = {{"fim_pre", id}};
    EXPECT_EQ(Tokenizer::from_gguf(data).status().code(), Code::kCorrupt) << id;
  }
}

}  // namespace
}  // namespace choral::text
