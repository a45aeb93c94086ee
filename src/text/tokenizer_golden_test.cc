// Every golden string: ids, ids with special tokens, decoded text, decoded text without special tokens, and the same text
// from the stream. The goldens were made with Hugging Face's tokenizers 0.22.
#include <gtest/gtest.h>
#include <simdjson.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <sstream>
#include <tuple>

#include "text/stream_detokenizer.h"
#include "text/tokenizer.h"

namespace choral::text {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

const std::string kData = std::string(CHORAL_TEST_DATA) + "/text/";

std::shared_ptr<const Tokenizer> load(const std::string& name) {
  const std::string folder = kData + "tokenizers/" + name;
  auto tokenizer = Tokenizer::from_json(read_file(folder + "/tokenizer.json"), read_file(folder + "/tokenizer_config.json"));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  return tokenizer.ok() ? *tokenizer : nullptr;
}

std::string stream(const std::shared_ptr<const Tokenizer>& tokenizer, std::span<const int32_t> ids, bool skip) {
  StreamDetokenizer detokenizer(tokenizer, {.skip_special_tokens = skip});
  std::string out;
  for (const int32_t id : ids) detokenizer.push(id, out);
  return out + detokenizer.finish();
}

std::vector<int32_t> ids_of(simdjson::dom::element line, const char* key) {
  std::vector<int32_t> out;
  simdjson::dom::array list;
  EXPECT_FALSE(line[key].get(list));
  for (const int64_t id : list) out.push_back(static_cast<int32_t>(id));
  return out;
}

void check_goldens(const std::shared_ptr<const Tokenizer>& tokenizer, const std::string& name, size_t expected_lines) {
  ASSERT_NE(tokenizer, nullptr);
  std::ifstream in(kData + "goldens/tokenizer-" + name + ".jsonl");
  simdjson::dom::parser parser;
  size_t lines = 0;
  for (std::string line; std::getline(in, line); ++lines) {
    const simdjson::dom::element golden = parser.parse(line).value();
    const std::string text(golden["text"].get_string().value());
    const std::vector<int32_t> ids = ids_of(golden, "ids");
    const auto encoded = tokenizer->encode(text, {.add_special_tokens = false});
    ASSERT_TRUE(encoded.ok()) << encoded.status().to_string();
    EXPECT_EQ(*encoded, ids) << text;
    const std::string decoded(golden["decoded"].get_string().value());
    const std::string skipped(golden["decoded_skip"].get_string().value());
    EXPECT_EQ(tokenizer->decode(ids), decoded);
    EXPECT_EQ(tokenizer->decode(ids, {.skip_special_tokens = true}), skipped);
    EXPECT_EQ(stream(tokenizer, ids, false), decoded);
    EXPECT_EQ(stream(tokenizer, ids, true), skipped);
    if (golden["ids_with_special"].error()) continue;
    const std::vector<int32_t> framed = ids_of(golden, "ids_with_special");
    EXPECT_EQ(*tokenizer->encode(text), framed) << text;
    EXPECT_EQ(tokenizer->decode(framed), golden["decoded_with_special"].get_string().value());
  }
  EXPECT_EQ(lines, expected_lines);
}

class GoldenTokenizer : public testing::TestWithParam<std::pair<const char*, size_t>> {};

TEST_P(GoldenTokenizer, GivesTheRecordedIdsAndTexts) {
  check_goldens(load(GetParam().first), GetParam().first, GetParam().second);
}

bool whole_utf8(std::string_view s) {
  for (size_t i = 0; i < s.size();) {
    const auto lead = static_cast<unsigned char>(s[i]);
    const size_t n = lead < 0x80 ? 1 : lead < 0xC0 ? 9 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (i + n > s.size()) return false;
    i += n;
  }
  return true;
}

TEST_P(GoldenTokenizer, StreamsRandomIdsAsDecodeGivesThem) {
  const auto tokenizer = load(GetParam().first);
  ASSERT_NE(tokenizer, nullptr);
  std::mt19937 random(7);
  // Half of the ids come from the first 300: there the single bytes are, which make broken and split characters.
  for (int round = 0; round < 400; ++round) {
    std::vector<int32_t> ids(random() % 40);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % (random() % 2 ? 300 : tokenizer->vocab_size() + 2)) - 1;
    for (const bool skip : {false, true}) {
      StreamDetokenizer detokenizer(tokenizer, {.skip_special_tokens = skip});
      for (int again = 0; again < 2; ++again) {  // finish() leaves a fresh stream
        std::string out;
        for (const int32_t id : ids) {
          const std::string piece = detokenizer.push(id);
          ASSERT_TRUE(whole_utf8(piece));
          out += piece;
        }
        ASSERT_EQ(out + detokenizer.finish(), tokenizer->decode(ids, {.skip_special_tokens = skip}));
      }
    }
  }
}

TEST_P(GoldenTokenizer, KnowsItsTokensBothWays) {
  const auto tokenizer = load(GetParam().first);
  ASSERT_NE(tokenizer, nullptr);
  int known = 0;
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
    const auto token = tokenizer->id_to_token(id);
    if (!token) continue;
    ++known;
    EXPECT_EQ(tokenizer->token_to_id(*token), id) << *token;
  }
  EXPECT_GT(known, 3900);
  EXPECT_FALSE(tokenizer->id_to_token(-1));
  EXPECT_FALSE(tokenizer->id_to_token(tokenizer->vocab_size()));
  EXPECT_EQ(tokenizer->token_bytes(-5), "");
  EXPECT_FALSE(tokenizer->chat_templates().empty() && std::string(GetParam().first) != "qwen2" &&
               std::string(GetParam().first) != "llama2");
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTokenizer,
                         testing::Values(std::pair("llama3", 116), std::pair("llama2", 108), std::pair("mistral", 106),
                                         std::pair("gemma", 105), std::pair("qwen2", 105), std::pair("deepseek", 106)),
                         [](const auto& tested) { return tested.param.first; });

// What a converter to GGUF writes for this tokenizer.json.
GgufTokenizerData gguf_of(const std::string& json, const std::string& pre) {
  simdjson::dom::parser parser;
  const simdjson::dom::element root = parser.parse(json).value();
  GgufTokenizerData data;
  data.model = "gpt2";
  data.pre = pre;
  const auto put = [&data](std::string_view token, int64_t id, int32_t type) {
    const auto at = static_cast<size_t>(id);
    if (data.tokens.size() <= at) data.tokens.resize(at + 1), data.token_types.resize(at + 1, 5);
    data.tokens[at] = token;
    data.token_types[at] = type;
  };
  simdjson::dom::object vocab;
  simdjson::dom::array added, merges;
  EXPECT_FALSE(root["model"]["vocab"].get(vocab) || root["model"]["merges"].get(merges) || root["added_tokens"].get(added));
  for (const auto [token, id] : vocab) put(token, id.get_int64().value(), 1);
  for (const simdjson::dom::element token : added) {
    put(token["content"].get_string().value(), token["id"].get_int64().value(), token["special"].get_bool().value() ? 3 : 4);
  }
  for (const simdjson::dom::element merge : merges) {
    std::string_view both;
    if (merge.get(both)) {
      data.merges.push_back(std::string(merge.at(0).get_string().value()) + " " + std::string(merge.at(1).get_string().value()));
    } else {
      data.merges.emplace_back(both);
    }
  }
  return data;
}

TEST(GoldenGguf, GivesTheSameIdsAndTexts) {
  for (const auto& [name, pre, lines, bos] :
       {std::tuple("llama3", "llama-bpe", 116, "<|begin_of_text|>"), std::tuple("qwen2", "qwen2", 105, ""),
        std::tuple("deepseek", "deepseek-v3", 106, "<｜begin▁of▁sentence｜>")}) {
    GgufTokenizerData data = gguf_of(read_file(kData + "tokenizers/" + name + "/tokenizer.json"), pre);
    const auto at = std::find(data.tokens.begin(), data.tokens.end(), bos);
    if (at != data.tokens.end()) data.bos_id = at - data.tokens.begin(), data.add_bos = true;
    const auto tokenizer = Tokenizer::from_gguf(data);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
    check_goldens(*tokenizer, name, lines);
  }
}

TEST(GoldenLlama3, ReachesTokensThatNoMergeMakes) {
  const auto tokenizer = load("llama3");
  const std::string file = read_file(kData + "tokenizers/llama3/ignore_merges_only.json");
  simdjson::dom::parser parser;
  simdjson::dom::array tokens;
  ASSERT_FALSE(parser.parse(file).get(tokens));
  int checked = 0;
  for (const std::string_view token : tokens) {
    const auto id = tokenizer->token_to_id(token);
    ASSERT_TRUE(id) << token;
    if (tokenizer->decode(std::vector<int32_t>{*id}) != tokenizer->token_bytes(*id)) continue;  // half a character
    EXPECT_EQ(*tokenizer->encode(tokenizer->token_bytes(*id), {.add_special_tokens = false}), std::vector<int32_t>{*id}) << token;
    ++checked;
  }
  EXPECT_GE(checked, 50);
}

TEST(GoldenLlama3, RolesAndUntrustedText) {
  const auto tokenizer = load("llama3");
  EXPECT_EQ(tokenizer->special_token("bos"), "<|begin_of_text|>");
  EXPECT_EQ(tokenizer->special_token("unk"), "");
  EXPECT_EQ(tokenizer->bos_id(), 3988);
  EXPECT_TRUE(tokenizer->is_special(*tokenizer->eos_id()));
  const auto plain = tokenizer->encode("a<|eot_id|>", {.add_special_tokens = false, .parse_special = false});
  for (const int32_t id : *plain) EXPECT_FALSE(tokenizer->is_special(id));
  EXPECT_EQ(tokenizer->decode(*plain), "a<|eot_id|>");
  // Broken UTF-8: one U+FFFD for each maximal broken part.
  EXPECT_EQ(*tokenizer->encode("a\xE4\xB8\xFF\xED\xA0\x80z"), *tokenizer->encode("a��"
                                                                                 "���z"));
}

}  // namespace
}  // namespace choral::text
