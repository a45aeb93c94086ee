// What GGUF says of the tokenizers of families: a reader makes the same tokenizer of it, or it is refused by what GGUF lacks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "text/gguf_tokenizer.h"

namespace choral::text {
namespace {

using ::testing::HasSubstr;

std::string read(const std::string& name) {
  std::ifstream file(std::string(CHORAL_TEST_DATA) + "/text/tokenizers/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string edited(std::string json, std::string_view from, std::string_view to) {
  const size_t at = json.find(from);
  EXPECT_NE(at, json.npos) << from;
  return at == json.npos ? json : json.replace(at, from.size(), to);
}

// The tokenizer as SentencePiece's conversion makes it: with every way to make a token of two others, in the order of the tokens'
// scores. The one of the tests was trained with one way for each.
std::string with_all_merges(const std::string& json) {
  auto root = nlohmann::ordered_json::parse(json);
  auto& model = root["model"];
  GgufTokenizerData data;
  data.tokens.resize(model["vocab"].size());
  for (const auto& [token, id] : model["vocab"].items()) data.tokens[id.get<size_t>()] = token;
  data.token_types.assign(data.tokens.size(), kNormal);
  for (const auto& added : root["added_tokens"]) data.token_types[added["id"].get<size_t>()] = kControl;
  data.scores.assign(data.tokens.size(), -1e6f);
  Vocabulary vocabulary;
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    EXPECT_TRUE(vocabulary.add(data.tokens[id], static_cast<int64_t>(id)).ok());
  }
  EXPECT_TRUE(vocabulary.finish().ok());
  float score = 0;
  for (const auto& merge : model["merges"]) {
    std::string both = merge.get<std::string>();
    both.erase(both.find(' '), 1);
    data.scores[vocabulary.find(both)] = --score;
  }
  model["merges"] = nlohmann::ordered_json::array();
  const auto merges = *merges_by_score(data, vocabulary);
  for (const BpeMerge& merge : merges) {
    model["merges"].push_back({vocabulary.token(merge.left), vocabulary.token(merge.right)});
  }
  return root.dump();
}

Result<GgufTokenizerData> data_of(const std::string& json, const std::string& config) {
  CHORAL_TRY(const auto tokenizer, Tokenizer::from_json(json, config));
  return gguf_tokenizer_data(*tokenizer, json);
}

class Family : public ::testing::TestWithParam<std::array<const char*, 3>> {};

TEST_P(Family, ReadsBackAsTheSameTokenizer) {
  const auto [name, model, pre] = GetParam();
  std::string json = read(name + std::string("/tokenizer.json"));
  if (model == std::string("llama")) json = with_all_merges(json);
  const auto tokenizer = *Tokenizer::from_json(json, read(name + std::string("/tokenizer_config.json")));
  const auto data = gguf_tokenizer_data(*tokenizer, json);
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  EXPECT_EQ(data->model, model);
  EXPECT_EQ(data->pre, pre);
  EXPECT_EQ(data->scores.empty(), data->model != "llama");
  const auto again = *Tokenizer::from_gguf(*data);
  ASSERT_EQ(again->vocab_size(), tokenizer->vocab_size());
  EXPECT_EQ(again->bos_id(), tokenizer->bos_id());
  EXPECT_EQ(again->eos_id(), tokenizer->eos_id());
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
    ASSERT_EQ(again->is_special(id), tokenizer->is_special(id)) << id;
    if (!tokenizer->id_to_token(id)) continue;
    ASSERT_EQ(again->id_to_token(id), tokenizer->id_to_token(id));
    ASSERT_EQ(again->token_bytes(id), tokenizer->token_bytes(id)) << id;
  }
  uint32_t seed = 5;
  for (int i = 0; i < 200; ++i) {  // random tokens side by side make texts that no list of samples has
    std::vector<int32_t> ids;
    for (int j = 0; j < 40; ++j) {
      seed = seed * 1664525u + 1013904223u;
      ids.push_back(static_cast<int32_t>((seed >> 8) % static_cast<uint32_t>(tokenizer->vocab_size())));
    }
    const std::string text = tokenizer->decode(ids);
    ASSERT_EQ(again->decode(ids), text);
    ASSERT_EQ(*again->encode(text), *tokenizer->encode(text)) << text;
    const EncodeOptions plain{.add_special_tokens = false, .parse_special = false};
    ASSERT_EQ(*again->encode(text, plain), *tokenizer->encode(text, plain)) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Family,
                         ::testing::Values(std::array{"llama3", "gpt2", "llama-bpe"}, std::array{"qwen2", "gpt2", "qwen2"},
                                           std::array{"llama2", "llama", ""}, std::array{"gemma", "gemma4", ""},
                                           std::array{"deepseek", "gpt2", "deepseek-v3"}),
                         [](const auto& test) { return std::string(test.param[0]); });

// The pieces of Gemma 4's files, whose merges are listed: made here of a tokenizer of the same stages.
TEST(GgufTokenizer, Gemma4ListsItsMerges) {
  const std::string json = read("gemma/tokenizer.json");
  const auto tokenizer = *Tokenizer::from_json(json, read("gemma/tokenizer_config.json"));
  const auto root = nlohmann::ordered_json::parse(json);
  GgufTokenizerData data;
  data.model = "gemma4";
  std::vector<bool> added(static_cast<size_t>(tokenizer->vocab_size()));
  for (const auto& token : root["added_tokens"]) added[token["id"].get<size_t>()] = true;
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
    const std::string token(tokenizer->id_to_token(id).value());
    const bool byte = token.size() == 6 && token.starts_with("<0x");
    data.tokens.push_back(token);
    data.token_types.push_back(token == "<unk>"                 ? kUnknown
                               : tokenizer->is_special(id)      ? kControl
                               : added[static_cast<size_t>(id)] ? kUserDefined
                               : byte                           ? kByte
                                                                : kNormal);
  }
  for (const auto& merge : root["model"]["merges"]) {
    data.merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  data.bos_id = tokenizer->bos_id();
  const auto again = Tokenizer::from_gguf(data);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  for (const char* text : {"Hello,  world!\n\n\n\tThe end.\n", " leading", "Zwölf Boxkämpfer \u4f60\u597d \U0001F642", "", "\n",
                           "a\n\n\n\n\n\nb", "<start_of_turn>user\nHi<end_of_turn>\n"}) {
    EXPECT_EQ(*(*again)->encode(text), *tokenizer->encode(text)) << text;
    EXPECT_EQ((*again)->decode(*tokenizer->encode(text)), tokenizer->decode(*tokenizer->encode(text))) << text;
  }
  data.merges.clear();
  EXPECT_THAT(Tokenizer::from_gguf(data).status().message(), HasSubstr("tokenizer.ggml.merges is missing"));
}

TEST(GgufTokenizerData, WhatGgufCannotSayIsRefused) {
  const auto error = [](const std::string& name) {
    const auto data = data_of(read(name + "/tokenizer.json"), read(name + "/tokenizer_config.json"));
    EXPECT_EQ(data.status().code(), Code::kUnsupported);
    return data.status().message();
  };
  EXPECT_THAT(error("llama2"), HasSubstr("follow no scores of tokens"));
  EXPECT_THAT(error("mistral"), HasSubstr("are none that GGUF has a name for"));  // "▁" before the first word only
}

TEST(GgufTokenizerData, AStageThatDiffersIsNotedNotGuessed) {
  const std::string json = read("llama3/tokenizer.json"), config = read("llama3/tokenizer_config.json");
  const auto error = [&](std::string_view from, std::string_view to) { return data_of(edited(json, from, to), config).status(); };
  EXPECT_THAT(error(R"(\\p{N}{1,3})", R"(\\p{N}{1,2})").message(), HasSubstr("GGUF has no name for: "));
  EXPECT_THAT(error(R"("behavior": "Isolated")", R"("behavior": "Removed")").message(), HasSubstr("are none that GGUF"));
  EXPECT_THAT(error(R"("lstrip": false)", R"("lstrip": true)").message(), HasSubstr("looks at what stands beside it"));
  EXPECT_TRUE(data_of(json, config).ok());
}

// Merges whose order no scores of tokens give: two ways to make one token, apart from each other.
TEST(GgufTokenizerData, MergesThatFollowNoScoresAreRefused) {
  const auto json = [](std::string_view merges) {
    return fmt::format(R"({{"version":"1.0","added_tokens":[{{"id":0,"content":"<unk>","special":true,"normalized":false}}],
      "normalizer":{{"type":"Sequence","normalizers":[{{"type":"Prepend","prepend":"▁"}},
        {{"type":"Replace","pattern":{{"String":" "}},"content":"▁"}}]}},"pre_tokenizer":null,"post_processor":null,
      "decoder":{{"type":"Sequence","decoders":[{{"type":"Replace","pattern":{{"String":"▁"}},"content":" "}},
        {{"type":"ByteFallback"}},{{"type":"Fuse"}},{{"type":"Strip","content":" ","start":1,"stop":0}}]}},
      "model":{{"type":"BPE","unk_token":"<unk>","fuse_unk":true,"byte_fallback":true,
        "vocab":{{"<unk>":0,"▁":1,"a":2,"b":3,"ab":4,"ba":5,"aba":6}},"merges":[{}]}}}})",
                       merges);
  };
  const auto scored = data_of(json(R"(["a","b"],["b","a"],["a","ba"],["ab","a"])"), "");
  ASSERT_TRUE(scored.ok()) << scored.status().to_string();
  EXPECT_GT(scored->scores[4], scored->scores[5]);
  EXPECT_GT(scored->scores[5], scored->scores[6]);
  EXPECT_THAT(data_of(json(R"(["ab","a"],["a","b"],["b","a"],["a","ba"])"), "").status().message(),
              HasSubstr("follow no scores"));
}

}  // namespace
}  // namespace choral::text
