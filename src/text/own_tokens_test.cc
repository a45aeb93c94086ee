// Tokens that another's files add to a tokenizer: read from each file that may hold them, recognised and spelled beside the
// tokenizer's own, and refused where they contradict it.
#include "text/own_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/stream_detokenizer.h"
#include "text/tokenizer.h"

namespace choral::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kAbc =
    R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2," ":3},"merges":["a b"]},
        "normalizer":{"type":"Lowercase"},
        "added_tokens":[{"id":4,"content":"<s>","special":true,"normalized":false}]})";

std::shared_ptr<const Tokenizer> abc() { return *Tokenizer::from_json(kAbc); }

TEST(AddedTokenList, IsTheFirstFilesThatHasOne) {
  AddedTokenFiles files;
  EXPECT_TRUE(read_added_token_list(files)->tokens.empty());
  files.added_tokens_json = R"({"<x>":7})";
  auto list = read_added_token_list(files);
  ASSERT_TRUE(list.ok());
  EXPECT_EQ(list->tokens, (std::vector<AddedToken>{{.content = "<x>", .id = 7, .normalized = false}}));
  files.tokenizer_json = R"({"added_tokens":[{"id":8,"content":"<y>","special":true,"rstrip":true}]})";
  list = read_added_token_list(files);
  EXPECT_EQ(list->tokens, (std::vector<AddedToken>{{.content = "<y>", .id = 8, .rstrip = true, .special = true}}));
  files.tokenizer_config_json = R"({"eos_token":{"content":"<e>"}})";
  list = read_added_token_list(files);
  EXPECT_EQ(list->tokens[0].id, 8);
  EXPECT_EQ(list->eos_token, "<e>");
  files.tokenizer_config_json = R"({"added_tokens_decoder":{"10":{"content":"<z>"},"9":{"content":"<w>","special":true}}})";
  list = read_added_token_list(files);
  ASSERT_EQ(list->tokens.size(), 2u);
  EXPECT_EQ(list->tokens[0].content, "<w>");
  EXPECT_EQ(list->tokens[1].id, 10);
}

TEST(AddedTokenList, SaysWhichFileIsBroken) {
  const auto said = [](AddedTokenFiles files) { return read_added_token_list(files).status().message(); };
  EXPECT_THAT(said({.tokenizer_json = "{", .tokenizer_config_json = "", .added_tokens_json = ""}), HasSubstr("tokenizer.json"));
  EXPECT_THAT(said({.tokenizer_json = "",
                    .tokenizer_config_json = R"({"added_tokens_decoder":{"-1":{"content":"a"}}})",
                    .added_tokens_json = ""}),
              HasSubstr("tokenizer_config.json: added_tokens_decoder has the id \"-1\""));
  EXPECT_THAT(said({.tokenizer_json = "", .tokenizer_config_json = "", .added_tokens_json = R"({"a":99999999999})"}),
              HasSubstr("added_tokens.json: token \"a\" has no id"));
  EXPECT_THAT(said({.tokenizer_json = "", .tokenizer_config_json = "", .added_tokens_json = "[]"}), HasSubstr("no object"));
}

TEST(WithTokens, AreKnownBesideTheTokenizersOwn) {
  const auto base = abc();
  const std::vector<AddedToken> tokens{{.content = "<S>", .id = 20, .normalized = false, .special = true},
                                       {.content = "<s>", .id = 4, .normalized = false, .special = true},
                                       {.content = "<Tool>", .id = 6}};
  const auto made = Tokenizer::with_tokens(*base, tokens);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const Tokenizer& more = **made;
  EXPECT_THAT(*more.encode("ab<S>a<tool><s>"), ElementsAre(2, 20, 0, 6, 4));  // a normalized token is looked for in either case
  EXPECT_THAT(*more.encode("<S>", {.add_special_tokens = true, .parse_special = false}), testing::Not(testing::Contains(20)));
  EXPECT_EQ(more.decode(std::vector<int32_t>{2, 20, 6, 5}), "ab <S> <Tool>");
  EXPECT_EQ(more.decode(std::vector<int32_t>{2, 20, 6}, {.skip_special_tokens = true}), "ab <Tool>");
  EXPECT_EQ(more.vocab_size(), 21);
  EXPECT_EQ(more.token_to_id("<Tool>"), 6);
  EXPECT_EQ(more.id_to_token(20), "<S>");
  EXPECT_EQ(more.token_bytes(6), "<Tool>");
  EXPECT_EQ(more.id_to_token(5), std::nullopt);
  EXPECT_TRUE(more.is_special(20));
  StreamDetokenizer stream(*made, {.skip_special_tokens = true});
  std::string text;
  for (const int32_t id : {6, 20, 0}) stream.push(id, text);
  EXPECT_EQ(text + stream.finish(), "<Tool> a");

  EXPECT_EQ(base->vocab_size(), 5);
  EXPECT_EQ(base->id_to_token(20), std::nullopt);
  EXPECT_EQ(base->decode(std::vector<int32_t>{2, 20, 6}), "ab");
}

TEST(WithTokens, AWordOfTheVocabularyMayBecomeOne) {
  const std::vector<AddedToken> tokens{{.content = "b", .id = 1, .normalized = false}};
  EXPECT_TRUE(abc()->unknown(tokens)->empty());
  EXPECT_THAT(*(*Tokenizer::with_tokens(*abc(), tokens))->encode("ab"), ElementsAre(0, 1)) << "it is cut out before merges";
}

TEST(WithTokens, ContradictionsAreRefused) {
  const auto said = [](std::vector<AddedToken> tokens) { return abc()->unknown(tokens).status().message(); };
  EXPECT_THAT(said({{.content = "<s>", .id = 9}}), HasSubstr("the token \"<s>\" has id 9 there, here 4"));
  EXPECT_THAT(said({{.content = "<x>", .id = 2}}), HasSubstr("id 2 is the token \"<x>\" there, here \"ab\""));
  EXPECT_THAT(said({{.content = "<x>", .id = 9}, {.content = "<y>", .id = 9}}), HasSubstr("both have id 9"));
  EXPECT_THAT(said({{.content = "<x>", .id = 9}, {.content = "<x>", .id = 10}}), HasSubstr("has the ids 9 and 10"));
  EXPECT_EQ(abc()->unknown(std::vector<AddedToken>{{.content = "<x>", .id = 9}, {.content = "<x>", .id = 9}})->size(), 1u);
  const std::vector<AddedToken> huge{{.content = std::string(5000, 'x'), .id = 9, .normalized = false}};
  EXPECT_THAT(Tokenizer::with_tokens(*abc(), huge).status().message(), HasSubstr("the limit is 4096"));
}

// Converters to GGUF fill the vocabulary up with names that nobody means.
TEST(WithTokens, TakeThePlacesThatAGgufFileLeavesUnused) {
  GgufTokenizerData data;
  data.model = "gpt2";
  data.pre = "gpt-2";
  data.tokens = {"a", "b", "[PAD2]", "[PAD3]"};
  data.token_types = {1, 1, 5, 5};
  const auto base = Tokenizer::from_gguf(data);
  ASSERT_TRUE(base.ok()) << base.status().to_string();
  const auto made = Tokenizer::with_tokens(**base, std::vector<AddedToken>{{.content = "<x>", .id = 2, .normalized = false}});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_THAT(*(*made)->encode("a<x>"), ElementsAre(0, 2));
  EXPECT_EQ((*made)->id_to_token(2), "<x>");
}

}  // namespace
}  // namespace choral::text
