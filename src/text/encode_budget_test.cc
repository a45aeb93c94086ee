// Hostile tokenizers and texts end with an error before they cost much; honest ones of a megabyte never meet the budget.
#include "text/encode_budget.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "text/tokenizer.h"

namespace choral::text {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Ids = std::vector<int32_t>;

constexpr size_t kMegabyte = 1 << 20;
constexpr std::string_view kModel = R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"aa":2},"merges":["a a"]})";

std::string repeated(std::string_view unit, size_t bytes) {
  std::string out;
  while (out.size() < bytes) out += unit;
  return out;
}

Result<std::shared_ptr<const Tokenizer>> make(std::string_view rest, std::string_view model = kModel) {
  return Tokenizer::from_json("{" + std::string(rest) + (rest.empty() ? "" : ",") + std::string(model) + "}");
}
std::string splitting_at(std::string_view regex) {
  return fmt::format(R"("pre_tokenizer":{{"type":"Split","pattern":{{"Regex":"{}"}},"behavior":"Isolated"}})", regex);
}
std::string normalizing(std::string_view step, int times) {
  std::string steps;
  for (int i = 0; i < times; ++i) steps.append(i == 0 ? "" : ",").append(step);
  return "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[" + steps + "]}";
}
void expect_refused(const Result<std::shared_ptr<const Tokenizer>>& tokenizer, std::string_view text, std::string_view says) {
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  const Status status = (*tokenizer)->encode(text).status();
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(), AllOf(HasSubstr(std::string(says)), HasSubstr("--tokenizer")));
}

TEST(EncodeBudget, RegexesPayForHowFarTheyLook) {
  const std::string letters(kMegabyte, 'a');
  // One try for each letter that looks to the end of the text: PCRE2's limits, of one match, see nothing of it.
  for (const char* regex : {"a*b|a", "a*+b|a", "(?=a*b)c|a", "(?:a*b)?a", "a*b"}) {
    SCOPED_TRACE(regex);
    expect_refused(make(splitting_at(regex)), letters, "too many times");
    expect_refused(make(fmt::format(R"("normalizer":{{"type":"Replace","pattern":{{"Regex":"{}"}},"content":"x"}})", regex)),
                   letters, "too many times");
  }
  expect_refused(make(splitting_at("(a|aa)+b|a")), letters, "heap limit");  // PCRE2's own
  // Many matches, each with work below any limit of a single one.
  expect_refused(make(splitting_at("(a+)+c|a")), repeated(std::string(24, 'a') + "b", kMegabyte), "too many times");
}

TEST(EncodeBudget, NormalizersCannotInflateAText) {
  const std::string twice = R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})";
  EXPECT_EQ(*(*make(normalizing(twice, 3)))->encode("a"), Ids(4, 2));
  expect_refused(make(normalizing(twice, 26)), "aaaa", "makes too much");
  expect_refused(make(normalizing(R"({"type":"Replace","pattern":{"Regex":"a"},"content":"aa"})", 26)), "aaaa", "too many times");
  expect_refused(make(normalizing(R"({"type":"ByteLevel"})", 26)), "é", "makes too much");
  expect_refused(make(normalizing(fmt::format(R"({{"type":"Prepend","prepend":"{}"}})", std::string(1 << 16, 'a')), 60)), "a",
                 "makes too much");
  std::string steps;
  for (int i = 0; i < 26; ++i) steps += R"({"type":"ByteLevel","use_regex":false,"add_prefix_space":false},)";
  steps.pop_back();
  expect_refused(make("\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" + steps + "]}"), "é", "makes too much");
  // Compatibility decomposition makes eighteen letters of one.
  const std::string ligature = R"({"type":"Replace","pattern":{"String":"a"},"content":"ﷺﷺﷺﷺﷺﷺﷺﷺ"})";
  expect_refused(make(normalizing(ligature + R"(,{"type":"NFKD"})", 1)), std::string(kMegabyte, 'a'), "makes too much");
}

TEST(EncodeBudget, ACallerMayGiveShortTextsLess) {
  const auto chain = make(normalizing(R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})", 12));
  EXPECT_EQ((*chain)->encode("a")->size(), size_t{2048});
  EXPECT_THAT((*chain)->encode("a", {.limits = {.free_growth = 1 << 10}}).status().message(), HasSubstr("makes too much"));
  const auto looking = make(splitting_at("a*b|a"));
  EXPECT_TRUE((*looking)->encode(std::string(1000, 'a')).ok());
  EXPECT_THAT((*looking)->encode(std::string(1000, 'a'), {.limits = {.free_work = 1 << 10}}).status().message(),
              HasSubstr("too many times"));
}

TEST(EncodeBudget, LongTokensAreNotTriedAtEveryPlaceWithoutEnd) {
  const std::string letters(kMegabyte, 'a');
  const std::string added =
      fmt::format(R"("added_tokens":[{{"id":3,"content":"{}b","normalized":false}}])", std::string(4094, 'a'));
  expect_refused(make(added), letters, "added tokens");
  const std::string unigram = fmt::format(
      R"("model":{{"type":"Unigram","unk_id":0,"vocab":[["?",0.0],["a",-1.0],["{}b",-2.0]]}})", std::string(65000, 'a'));
  expect_refused(make("", unigram), letters, "search for tokens");
  // White space that belongs to a token is not walked anew for each of a run of such tokens.
  const std::string space = R"("added_tokens":[{"id":3,"content":" ","normalized":false,"lstrip":true}])";
  EXPECT_EQ(*(*make(space))->encode(std::string(kMegabyte, ' ')), Ids(kMegabyte, 3));
}

TEST(EncodeBudget, TheDecoderCannotInflateATextEither) {
  std::string steps;
  for (int i = 0; i < 26; ++i) steps += R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"},)";
  steps.pop_back();
  const Status status = make("\"decoder\":{\"type\":\"Sequence\",\"decoders\":[" + steps + "]}").status();
  EXPECT_EQ(status.code(), Code::kTooLarge);
  EXPECT_THAT(status.message(), HasSubstr("decoder"));
}

// Each token stays below what a text of its size may cost.
TEST(EncodeBudget, TheDecoderHasOneBudgetForTheVocabulary) {
  const auto decoding = [](std::string_view pattern, std::string_view content, int tokens) {
    std::string vocabulary;
    for (int i = 0; i < tokens; ++i) vocabulary += fmt::format(R"({}"{}{}":{})", i ? "," : "", std::string(2000, 'a'), i, i);
    return make(fmt::format(R"("decoder":{{"type":"Replace","pattern":{},"content":"{}"}})", pattern, content),
                fmt::format(R"("model":{{"type":"BPE","vocab":{{{}}},"merges":[]}})", vocabulary));
  };
  const std::string_view looking = R"({"Regex":"a*b|x"})";
  EXPECT_TRUE(decoding(looking, "y", 1).ok());
  const std::string longer(1 << 6, 'b');
  for (const auto& [tokenizer, says] : {std::pair(decoding(looking, "y", 30), "too many times"),
                                        std::pair(decoding(R"({"Regex":"a"})", longer, 30), "makes too much"),
                                        std::pair(decoding(R"({"String":"a"})", longer, 30), "makes too much")}) {
    EXPECT_EQ(tokenizer.status().code(), Code::kCorrupt);
    EXPECT_THAT(tokenizer.status().message(), AllOf(HasSubstr(says), HasSubstr("--tokenizer")));
  }
}

TEST(EncodeBudget, TheDecoderHasOneBudgetForAnAnswer) {
  const std::string letters(1000, 'a');
  const auto tokenizer = make(
      R"("decoder":{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Replace","pattern":{"Regex":"(?=a*b)c|a"},"content":"y"}]})",
      fmt::format(R"("model":{{"type":"BPE","vocab":{{"{}":0,"a":1}},"merges":[]}})", letters));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  const std::string replaced(1000, 'y');
  EXPECT_EQ((*tokenizer)->decode(Ids(1, 0)), replaced);
  const std::string many = (*tokenizer)->decode(Ids(200, 0));
  EXPECT_TRUE(many.starts_with(replaced));
  EXPECT_TRUE(many.ends_with(letters)) << "the budget is used up: as it is";
  EXPECT_EQ((*tokenizer)->decode(Ids(1, 0)), replaced);
}

TEST(EncodeBudget, IdsFarAboveTheNumberOfTokensAreRefused) {
  const auto with_id = [](int64_t id) {
    return make("", fmt::format(R"("model":{{"type":"BPE","vocab":{{"a":0,"z":{}}},"merges":[]}})", id));
  };
  EXPECT_EQ((*with_id(60000))->vocab_size(), 60001);
  const Status status = with_id(4194303).status();
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("\"z\" has id 4194303"), HasSubstr("a vocabulary of 2 tokens")));
}

Status encoded(const Result<std::shared_ptr<const Tokenizer>>& tokenizer, std::string_view text, size_t max_tokens) {
  return (*tokenizer)->encode(text, {.max_tokens = max_tokens}).status();
}

TEST(EncodeBudget, ATextOfTooManyTokensIsRefusedWhenThatIsSure) {
  const auto plain = make("");
  EXPECT_TRUE(encoded(plain, "aaaa", 2).ok());
  EXPECT_EQ(encoded(plain, "aaaab", 2).code(), Code::kTooLarge);
  EXPECT_THAT(encoded(plain, std::string(kMegabyte, 'a'), 2).message(), HasSubstr("the text has more than 2 tokens"));
  // Text that a stage drops is no token, however long it is.
  const auto stripping = make(R"("normalizer":{"type":"Strip"})");
  EXPECT_TRUE(encoded(stripping, std::string(kMegabyte, ' ') + "aaaa", 2).ok());
  EXPECT_TRUE(encoded(plain, std::string(kMegabyte, '?') + "aaaa", 2).ok()) << "the model drops what it cannot spell";
  // A letter and its marks become one letter, which is a byte token for each of its bytes.
  std::string bytes;
  for (int b = 0; b < 256; ++b) bytes += fmt::format(R"("<0x{:02X}>":{},)", b, b);
  const auto composing = make(R"("normalizer":{"type":"NFKC"})",
                              R"("model":{"type":"BPE","byte_fallback":true,"vocab":{)" + bytes + R"("A":256},"merges":[]})");
  EXPECT_TRUE(encoded(composing, repeated("𝐀", 4000), 1000).ok()) << "four bytes each, and one token";
  EXPECT_EQ(encoded(composing, repeated("𝐀", 4004), 1000).code(), Code::kTooLarge);
  EXPECT_EQ(encoded(composing, std::string(kMegabyte, 'x'), 1000).code(), Code::kTooLarge);
}

class HonestTokenizer : public testing::TestWithParam<const char*> {};

TEST_P(HonestTokenizer, HandlesAMegabyteOfAnything) {
  std::ifstream in(fmt::format("{}/text/tokenizers/{}/tokenizer.json", CHORAL_TEST_DATA, GetParam()), std::ios::binary);
  std::stringstream json;
  json << in.rdbuf();
  const auto tokenizer = Tokenizer::from_json(json.str());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  for (const char* unit : {"The quick brown fox, having jumped over 13 lazy dogs, didn't stop: it ran on.\n",
                           "  for (int i = 0; i < n; ++i) {\n\n\t}\r\n",
                           "千里之行，始于足下。",
                           "千里之行始于足下",
                           "안녕하세요 세계",
                           "a",
                           "9",
                           " ",
                           "\n",
                           "\t",
                           "\r\n",
                           " \n",
                           "=",
                           "-=_",
                           "👩‍👩‍👧‍👦",
                           "é",
                           "e\xCC\x81",
                           "\xCC\x81",
                           "ﷺ",
                           "\xF0\x9D\x90\x80",
                           "\x01",
                           "\xFF",
                           "aB",
                           "a1",
                           "<|",
                           "<s>",
                           "日本語 and 한국어, mixed 123 "}) {
    const auto ids = (*tokenizer)->encode(repeated(unit, kMegabyte));
    EXPECT_TRUE(ids.ok()) << unit << ": " << ids.status().to_string();
  }
}

INSTANTIATE_TEST_SUITE_P(All, HonestTokenizer, testing::Values("llama3", "llama2", "mistral", "gemma", "qwen2", "deepseek"));

}  // namespace
}  // namespace choral::text
