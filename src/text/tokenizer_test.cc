// The rules of each stage, on tokenizers small enough to work out by hand, and the ways a file can be wrong.
#include "text/tokenizer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "text/stream_detokenizer.h"

namespace choral::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<int32_t>;

constexpr std::string_view kAbcModel =
    R"("model":{"type":"BPE","unk_token":null,"vocab":{"a":0,"b":1,"c":2,"ab":3,"bc":4,"abc":5," ":6,"x":7},"merges":["b c","a b","a bc"]})";

Result<std::shared_ptr<const Tokenizer>> make(std::string_view rest, std::string_view config = {}) {
  return Tokenizer::from_json("{" + std::string(rest) + "}", config);
}
Ids encode(const Result<std::shared_ptr<const Tokenizer>>& tokenizer, std::string_view text, EncodeOptions options = {}) {
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  if (!tokenizer.ok()) return {};
  const auto ids = (*tokenizer)->encode(text, options);
  EXPECT_TRUE(ids.ok()) << ids.status().to_string();
  return ids.ok() ? *ids : Ids{-1};
}
void expect_error(std::string_view rest, std::string_view says, std::string_view config = {}) {
  const auto tokenizer = make(rest, config);
  ASSERT_FALSE(tokenizer.ok()) << rest;
  EXPECT_THAT(tokenizer.status().message(), HasSubstr(std::string(says)));
}

TEST(Bpe, MergesByRankNotByPosition) {
  EXPECT_THAT(encode(make(kAbcModel), "abc"), ElementsAre(5));  // b c first, then a bc
  EXPECT_THAT(encode(make(kAbcModel), "ab"), ElementsAre(3));
  EXPECT_THAT(encode(make(kAbcModel), "aabcb"), ElementsAre(0, 5, 1));
}

TEST(Bpe, DropsOrReplacesWhatItCannotSpell) {
  EXPECT_THAT(encode(make(kAbcModel), "aéc"), ElementsAre(0, 2));
  const std::string unk =
      R"("model":{"type":"BPE","unk_token":"?","fuse_unk":FUSE,"byte_fallback":true,"vocab":{"?":0,"a":1,"<0xC3>":2,"<0xA9>":3},"merges":[]})";
  const auto with = [&](std::string_view fuse) {
    std::string s = unk;
    return make(s.replace(s.find("FUSE"), 4, fuse));
  };
  EXPECT_THAT(encode(with("true"), "é"), ElementsAre(2, 3));
  EXPECT_THAT(encode(with("true"), "xyaz"), ElementsAre(0, 1, 0));
  EXPECT_THAT(encode(with("false"), "xyaz"), ElementsAre(0, 0, 1, 0));
  EXPECT_THAT(encode(with("true"), "xé"), ElementsAre(2, 3, 0));  // HF writes the waiting unknown after the bytes
}

TEST(Bpe, AMegabyteOfOneLetterTakesNoSquareTime) {
  const auto tokenizer = make(R"("model":{"type":"BPE","vocab":{"a":0,"aa":1,"aaaa":2},"merges":["a a","aa aa"]})");
  EXPECT_EQ(encode(tokenizer, std::string(1 << 20, 'a')), Ids(1 << 18, 2));
}

// What came out whole is noted, and no other: "abc" and "ac" are tokens that no merges lead to.
TEST(Bpe, WordsComeOutAgainAsTheyDidAtFirst) {
  const std::string model =
      R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"c":2,"ab":3,"abc":4,"ac":5,"Ã":6,"©":7,"Ã©":8},"merges":["a b","Ã ©"]})";
  const std::string bytes = R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":false},)";
  for (const auto& tokenizer : {make(model), make(bytes + model)}) {
    for (int time = 0; time < 3; ++time) {
      EXPECT_THAT(encode(tokenizer, "ab"), ElementsAre(3)) << time;
      EXPECT_THAT(encode(tokenizer, "abc"), ElementsAre(3, 2)) << time;
      EXPECT_THAT(encode(tokenizer, "ac"), ElementsAre(0, 2)) << time;
    }
  }
  const auto of_bytes = make(bytes + model);
  for (int time = 0; time < 3; ++time) EXPECT_THAT(encode(of_bytes, "é"), ElementsAre(8)) << time;
  // With an affix the token of a word's own text is another's.
  const auto affixed = make(
      R"("model":{"type":"BPE","end_of_word_suffix":"$","vocab":{"a":0,"b":1,"b$":2,"ab":3,"ab$":4},"merges":["a b","a b$"]})");
  for (int time = 0; time < 3; ++time) EXPECT_THAT(encode(affixed, "ab"), ElementsAre(4)) << time;
}

TEST(Bpe, ThreadsMayNoteTheSameWords) {
  const auto tokenizer = make(kAbcModel);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) EXPECT_THAT(encode(tokenizer, "abc"), ElementsAre(5));
    });
  }
  for (auto& thread : threads) thread.join();
}

// By the steps for one token, which are done already, and those behind them.
TEST(Decoder, BytesOfATokenInTheMiddleOfAText) {
  const auto tokenizer = make(
      R"("decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"}]},)"
      R"("model":{"type":"BPE","byte_fallback":true,"vocab":{"▁a":0,"<0x41>":1},"merges":[]})");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  EXPECT_EQ((*tokenizer)->token_bytes(0), " a");
  EXPECT_EQ((*tokenizer)->token_bytes(1), "A");
  const auto of_bytes = make(R"("decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{"Ġa":0,"ĠĠ":1},"merges":[]})");
  ASSERT_TRUE(of_bytes.ok()) << of_bytes.status().to_string();
  EXPECT_EQ((*of_bytes)->token_bytes(0), " a");
  EXPECT_EQ((*of_bytes)->token_bytes(1), "  ");
}

TEST(Bpe, LongAndShortWordsMergeAlike) {
  // "abc" forty times: the long path; each alone: the short one.
  std::string text;
  Ids expected;
  for (int i = 0; i < 40; ++i) text += "abc", expected.push_back(5);
  EXPECT_EQ(encode(make(kAbcModel), text), expected);
}

TEST(Unigram, TakesTheBestSumAndFusesUnknowns) {
  const auto tokenizer =
      make(R"("model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0.0],["a",-1.0],["b",-1.0],["ab",-1.5],["abb",-9.0]]})");
  EXPECT_THAT(encode(tokenizer, "abb"), ElementsAre(3, 2));
  EXPECT_THAT(encode(tokenizer, "axyb"), ElementsAre(1, 0, 2));
  const auto none = make(R"("model":{"type":"Unigram","vocab":[["a",-1.0]]})");
  EXPECT_EQ((*none)->encode("b").status().code(), Code::kInvalidArgument);
}

TEST(AddedTokens, LongestFirstAndTheirFlags) {
  const auto token = [](std::string_view content, std::string_view flags = "") {
    return fmt::format(R"({{"id":9,"content":"{}","normalized":false{}}})", content, flags);
  };
  const auto with = [&](std::string tokens) { return make("\"added_tokens\":[" + tokens + "]," + std::string(kAbcModel)); };
  EXPECT_THAT(encode(with(token("<e>") + "," + token("<e>>")), "a<e>>b<e>"), ElementsAre(0, 9, 1, 8));
  EXPECT_THAT(encode(with(token("<e>", R"(,"lstrip":true)")), "a  <e> b"), ElementsAre(0, 8, 6, 1));
  EXPECT_THAT(encode(with(token("<e>", R"(,"rstrip":true)")), "a <e>  b"), ElementsAre(0, 6, 8, 1));
  EXPECT_THAT(encode(with(token("x", R"(,"single_word":true)")), "x ax"), ElementsAre(7, 6, 0, 7));
  EXPECT_THAT(encode(with(token("ab")), "abc"), ElementsAre(3, 2));  // keeps the model's id
  const auto special = with(token("<e>", R"(,"special":true)"));
  EXPECT_THAT(encode(special, "a<e>", {.parse_special = false}), ElementsAre(0));  // then its characters are unknown
  EXPECT_EQ((*special)->decode(Ids{0, 8}, {.skip_special_tokens = true}), "a");
}

TEST(AddedTokens, NormalizedOnesAreFoundInNormalizedText) {
  const std::string rest = R"("normalizer":{"type":"Lowercase"},"added_tokens":[{"id":8,"content":"BC","normalized":)";
  EXPECT_THAT(encode(make(rest + "true}]," + std::string(kAbcModel)), "aBcbc"), ElementsAre(0, 8, 8));
  EXPECT_THAT(encode(make(rest + "false}]," + std::string(kAbcModel)), "aBcBC"), ElementsAre(5, 8));
}

std::vector<std::string> pieces(std::string_view pre_tokenizer, std::string_view text) {
  // Letters and marks are tokens; nothing merges across pieces, so a token "ab" shows that a and b stayed together.
  const auto tokenizer = make(fmt::format(
      R"("pre_tokenizer":{},"model":{{"type":"BPE","ignore_merges":true,"unk_token":"?","vocab":{{"?":0,"a-":1,"-a":2,"a":3,"-":4,"--":5,"a--":6,"-a-":7,"▁a":8,"▁":9,"▁a▁a":10,"12":11,"1":12,"2":13}},"merges":[]}})",
      pre_tokenizer));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  std::vector<std::string> out;
  for (const int32_t id : encode(tokenizer, text)) out.emplace_back(*(*tokenizer)->id_to_token(id));
  return out;
}

TEST(PreTokenizer, TheFiveBehaviours) {
  const auto split = [](std::string_view behavior, bool invert = false) {
    return fmt::format(R"({{"type":"Split","pattern":{{"String":"-"}},"behavior":"{}","invert":{}}})", behavior, invert);
  };
  EXPECT_THAT(pieces(split("Isolated"), "a--a"), ElementsAre("a", "-", "-", "a"));
  EXPECT_THAT(pieces(split("Removed"), "a--a"), ElementsAre("a", "a"));
  EXPECT_THAT(pieces(split("Removed", true), "a--a"), ElementsAre("-", "-"));
  EXPECT_THAT(pieces(split("Contiguous"), "a--a"), ElementsAre("a", "--", "a"));
  EXPECT_THAT(pieces(split("MergedWithPrevious"), "a--a"), ElementsAre("a-", "-", "a"));
  EXPECT_THAT(pieces(split("MergedWithNext"), "a--a"), ElementsAre("a", "-", "-a"));
  EXPECT_THAT(pieces(R"({"type":"Digits","individual_digits":false})", "12a"), ElementsAre("12", "a"));
  EXPECT_THAT(pieces(R"({"type":"Digits","individual_digits":true})", "12a"), ElementsAre("1", "2", "a"));
  EXPECT_THAT(pieces(R"({"type":"Punctuation"})", "a-a"), ElementsAre("a", "-", "a"));
  EXPECT_THAT(pieces(R"({"type":"Whitespace"})", "a --a"), ElementsAre("a", "--", "a"));
  EXPECT_THAT(pieces(R"({"type":"WhitespaceSplit"})", " a- a"), ElementsAre("a-", "a"));
}

TEST(PreTokenizer, MetaspaceSchemes) {
  const auto metaspace = [](std::string_view scheme, bool split = true) {
    return fmt::format(R"({{"type":"Metaspace","replacement":"▁","prepend_scheme":"{}","split":{}}})", scheme, split);
  };
  EXPECT_THAT(pieces(metaspace("always"), "a a"), ElementsAre("▁a", "▁a"));
  EXPECT_THAT(pieces(metaspace("never"), "a a"), ElementsAre("a", "▁a"));
  EXPECT_THAT(pieces(metaspace("always", false), "a a"), ElementsAre("▁a▁a"));
  EXPECT_THAT(pieces(metaspace("always"), " a"), ElementsAre("▁a"));
  // "first" prefixes the start of the text only, "always" each part that another step or an added token leaves.
  const auto after_digits = [&](std::string_view scheme) {
    return R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},)" + metaspace(scheme) + "]}";
  };
  EXPECT_THAT(pieces(after_digits("first"), "a1a"), ElementsAre("▁a", "1", "a"));
}

std::string decode(std::string_view decoder, Ids ids, std::string_view config = {}) {
  const auto tokenizer = make(
      fmt::format(
          R"("decoder":{},"model":{{"type":"BPE","vocab":{{"▁a":0,"b":1,"<0xE4>":2,"<0xB8>":3,"<0xAD>":4,"▁":5,"▁.":6,"▁'s":7,"<0x41>":8,"Ã":9,"©":10,"▁x":11}},"merges":[]}})",
          decoder),
      config);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  if (!tokenizer.ok()) return {};
  StreamDetokenizer stream(*tokenizer);
  std::string out;
  for (const int32_t id : ids) stream.push(id, out);
  EXPECT_EQ(out + stream.finish(), (*tokenizer)->decode(ids));
  return (*tokenizer)->decode(ids);
}

constexpr std::string_view kSentencePiece =
    R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]})";

TEST(Decoder, SentencePieceChain) {
  EXPECT_EQ(decode(kSentencePiece, {0, 1, 0}), "ab a");
  EXPECT_EQ(decode(kSentencePiece, {5, 0}), " a");  // only one space goes
  EXPECT_EQ(decode(kSentencePiece, {2, 3, 4, 8, 1}), "中Ab");
  EXPECT_EQ(decode(kSentencePiece, {2, 3, 4, 2}), "����");  // a run is valid as a whole, or each byte is one mark
  EXPECT_EQ(decode(kSentencePiece, {4, 8, 1}), "��b");
  EXPECT_EQ(decode(kSentencePiece, {99, -1, 1}), "b");
}

TEST(Decoder, TheOthers) {
  EXPECT_EQ(decode(R"({"type":"ByteLevel"})", {9, 10, 9}), "é�");
  EXPECT_EQ(decode(R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"always"})", {0, 0}), "a a");
  EXPECT_EQ(decode(R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"never"})", {0, 0}), " a a");
  EXPECT_EQ(decode("null", {1, 1}), "b b");
  EXPECT_EQ(decode(R"({"type":"Strip","content":"b","start":1,"stop":1})", {1, 0}), "▁a");
}

TEST(Decoder, CleanUpAsTransformersDoes) {
  const std::string_view on = R"({"clean_up_tokenization_spaces":true})";
  EXPECT_EQ(decode(kSentencePiece, {0, 6, 7, 5}, on), "a.'s ");
  EXPECT_EQ(decode(kSentencePiece, {0, 6, 7, 5}), "a . 's ");
}

TEST(Config, TemplatesRolesAndFlags) {
  const auto tokenizer = make(
      R"("added_tokens":[{"id":8,"content":"<s>","special":true,"normalized":false}],)" + std::string(kAbcModel),
      R"({"bos_token":{"content":"<s>"},"eos_token":"</s>","pad_token":null,"tokenizer_class":"LlamaTokenizerFast","add_bos_token":true,
               "chat_template":[{"name":"tool_use","template":"T"},{"name":"default","template":"D"}]})");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  ASSERT_EQ((*tokenizer)->chat_templates().size(), 2u);
  EXPECT_EQ((*tokenizer)->chat_templates()[0].name, "tool_use");
  EXPECT_EQ((*tokenizer)->chat_templates()[1].source, "D");
  EXPECT_EQ((*tokenizer)->bos_id(), 8);
  EXPECT_EQ((*tokenizer)->eos_id(), 9);  // transformers adds a role's token that nobody knows
  EXPECT_FALSE((*tokenizer)->special_id("pad"));
  EXPECT_THAT(encode(tokenizer, "abc</s>"), ElementsAre(8, 5, 9));
}

TEST(Refusals, SayWhatAndWhere) {
  expect_error("", "\"model\"");
  expect_error(R"("model":{"type":"WordPiece"})", "WordPiece");
  expect_error(R"("model":{"type":"BPE","vocab":{"a":-1},"merges":[]})", "id -1");
  expect_error(R"("model":{"type":"BPE","vocab":{"a":4194304},"merges":[]})", "4194304");
  expect_error(R"("model":{"type":"BPE","vocab":{"a":0,"b":0},"merges":[]})", "both have id 0");
  expect_error(R"("model":{"type":"BPE","vocab":{"a":0,"a":1},"merges":[]})", "twice");
  expect_error(R"("model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]})", "no \"b\"");
  expect_error(R"("model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b"]})", "\"ab\"");
  expect_error(R"("model":{"type":"BPE","vocab":{"a":0},"merges":["a"]})", "one space");
  expect_error(R"("model":{"type":"Unigram","unk_id":3,"vocab":[["a",0.0]]})", "unk_id 3");
  const auto with = [](std::string_view field) { return std::string(field) + "," + std::string(kAbcModel); };
  expect_error(with(R"("normalizer":{"type":"Precompiled"})"), "Precompiled");
  expect_error(with(R"("normalizer":{"type":"BertNormalizer"})"), "BertNormalizer");
  expect_error(with(R"("pre_tokenizer":{"type":"UnicodeScripts"})"), "UnicodeScripts");
  expect_error(with(R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"[a&&b]"},"behavior":"Isolated"})"), "intersection");
  expect_error(with(R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a"},"behavior":"Isolated"})"), "not closed");
  expect_error(with(R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"a**?{9"},"behavior":"Odd"})"), "");
  expect_error(with(R"("decoder":{"type":"CTC"})"), "CTC");
  std::string nested = R"({"type":"NFC"})";
  for (int i = 0; i < 12; ++i) nested = R"({"type":"Sequence","normalizers":[)" + nested + "]}";
  expect_error(with("\"normalizer\":" + nested), "nested");
  EXPECT_EQ(Tokenizer::from_json("{\"model\"").status().code(), Code::kCorrupt);
  EXPECT_EQ(Tokenizer::from_json(std::string(100000, '[')).status().code(), Code::kCorrupt);
}

TEST(Regexes, APatternThatExplodesIsAnErrorNotAHang) {
  const auto tokenizer =
      make(R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a+)+c"},"behavior":"Isolated"},)" + std::string(kAbcModel));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  const Status exploded = (*tokenizer)->encode(std::string(64, 'a') + "bc").status();
  EXPECT_EQ(exploded.code(), Code::kCorrupt);
  EXPECT_THAT(exploded.message(), testing::AllOf(HasSubstr("(a+)+c"), HasSubstr("too many times"), HasSubstr("--tokenizer")));
}

GgufTokenizerData byte_level_data() {
  GgufTokenizerData data;
  data.model = "gpt2";
  data.pre = "smollm";
  data.tokens = {"<s>", "a", "b", "ab", "1", "Ġ"};
  data.token_types = {3, 1, 1, 1, 1, 1};
  data.merges = {"a b"};
  data.bos_id = 0;
  return data;
}

// GGUF texts are any bytes.
TEST(Gguf, AMessageMayQuoteWhatIsNoText) {
  const auto refusal = [](auto change) {
    GgufTokenizerData data = byte_level_data();
    change(data);
    return Tokenizer::from_gguf(data).status().message();
  };
  EXPECT_THAT(refusal([](auto& data) { data.pre = "nope\xe9"; }), HasSubstr("\"nope\\xe9\""));
  EXPECT_THAT(refusal([](auto& data) { data.model = "x\xe9\xbe"; }), HasSubstr("\"x\\xe9\\xbe\""));
  EXPECT_THAT(refusal([](auto& data) { data.merges = {"ab\xe9"}; }), HasSubstr("ab\\xe9"));
  EXPECT_THAT(refusal([](auto& data) { data.merges = {"a\xe9 b"}; }), HasSubstr("a\\xe9"));
}

TEST(Gguf, ByteLevel) {
  GgufTokenizerData data = byte_level_data();
  EXPECT_THAT(encode(Tokenizer::from_gguf(data), "<s>ab 11"), ElementsAre(0, 3, 5, 4, 4));
  data.add_bos = true;
  EXPECT_THAT(encode(Tokenizer::from_gguf(data), "ab"), ElementsAre(0, 3));
  data.pre = "smolm";
  const auto unknown = Tokenizer::from_gguf(data);
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(unknown.status().message(), testing::AllOf(HasSubstr("qwen2"), HasSubstr("did you mean smollm?")));
  data = byte_level_data();
  data.bos_id = 77;
  EXPECT_FALSE(Tokenizer::from_gguf(data).ok());
  data = byte_level_data();
  data.token_types.pop_back();
  EXPECT_FALSE(Tokenizer::from_gguf(data).ok());
}

TEST(Gguf, SentencePieceMergesByScore) {
  GgufTokenizerData data;
  data.model = "llama";
  data.tokens = {"<unk>", "<s>", "▁", "a", "b", "▁a", "ab", "<0x21>"};
  data.token_types = {2, 3, 1, 1, 1, 1, 1, 6};
  data.scores = {0, 0, -5, -6, -7, -2, -1, 0};
  data.bos_id = 1;
  EXPECT_THAT(encode(Tokenizer::from_gguf(data), "ab"), ElementsAre(1, 2, 6));  // "ab" has the better score
  data.scores[5] = 0;
  EXPECT_THAT(encode(Tokenizer::from_gguf(data), "ab!"), ElementsAre(1, 5, 4, 7));
  EXPECT_EQ((*Tokenizer::from_gguf(data))->decode(Ids{5, 4, 7}), "ab!");
  data.scores.clear();
  EXPECT_FALSE(Tokenizer::from_gguf(data).ok());
}

TEST(Gguf, SpecialTokensMayTakeTheWhiteSpaceAfterThem) {
  GgufTokenizerData data;
  data.model = "llama";
  data.tokens = {"<unk>", "<s>", "▁", "a", "b", "▁a", "ab", "<0x0A>", "<|user|>", "<|endoftext|>"};
  data.token_types = {2, 3, 1, 1, 1, 1, 1, 6, 3, 3};
  data.scores = {0, 0, -5, -6, -7, -2, -1, 0, 0, 0};
  data.add_bos = false;
  const std::string text = "<|user|>\nab<|endoftext|>\nab";
  EXPECT_THAT(encode(Tokenizer::from_gguf(data), text), ElementsAre(8, 2, 7, 6, 9, 2, 7, 6));
  data.special_take_space = true;
  EXPECT_THAT(encode(Tokenizer::from_gguf(data), text), ElementsAre(8, 2, 6, 9, 2, 7, 6));
}

}  // namespace
}  // namespace choral::text
