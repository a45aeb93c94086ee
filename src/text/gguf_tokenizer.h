// What GGUF calls the parts of a tokenizer, for its reader (tokenizer_gguf.cc) and the way back (gguf_tokenizer_data.cc). Pure;
// any thread.
#pragma once

#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "text/bpe_model.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace choral::text {

inline constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// As Qwen2's, but line ends are no part of what stands before them.
inline constexpr std::string_view kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kDeepSeek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// One kind of pre-tokenizer: regexes that isolate their matches one after another; GPT-2's own pattern where asked.
struct GgufPreTokenizer {
  std::string_view name;
  std::array<std::string_view, 4> splits;
  bool single_digits = false;
  bool gpt2_pattern = false;
  bool nfc = false;
  bool ignore_merges = false;
  bool add_bos = false;
};
inline constexpr std::string_view kHanAndKana = "[一-龥぀-ゟ゠-ヿ]+";
inline constexpr std::string_view kDigits3 = R"(\p{N}{1,3})";
inline constexpr auto kGgufPreTokenizers = std::to_array<GgufPreTokenizer>({
    {.name = "gpt-2", .splits = {}, .gpt2_pattern = true},
    {.name = "gpt2", .splits = {}, .gpt2_pattern = true},
    {.name = "mpt", .splits = {}, .gpt2_pattern = true},
    {.name = "olmo", .splits = {}, .gpt2_pattern = true},
    {.name = "phi-2", .splits = {}, .gpt2_pattern = true},
    {.name = "smollm", .splits = {}, .single_digits = true, .gpt2_pattern = true},
    {.name = "starcoder", .splits = {}, .single_digits = true, .gpt2_pattern = true},
    {.name = "refact", .splits = {}, .single_digits = true, .gpt2_pattern = true},
    {.name = "command-r", .splits = {}, .single_digits = true, .gpt2_pattern = true, .nfc = true, .add_bos = true},
    {.name = "llama-bpe", .splits = {kLlama3}, .ignore_merges = true, .add_bos = true},
    {.name = "llama3", .splits = {kLlama3}, .ignore_merges = true, .add_bos = true},
    {.name = "llama-v3", .splits = {kLlama3}, .ignore_merges = true, .add_bos = true},
    {.name = "dbrx", .splits = {kLlama3}},
    {.name = "smaug-bpe", .splits = {kLlama3}},
    {.name = "glm4", .splits = {kLlama3}},
    {.name = "chatglm-bpe", .splits = {kLlama3}},
    {.name = "qwen2", .splits = {kQwen2}, .nfc = true},
    {.name = "qwen35", .splits = {kQwen35}, .nfc = true},
    {.name = "deepseek-r1-qwen", .splits = {kQwen2}, .nfc = true},
    {.name = "stablelm2", .splits = {kQwen2}},
    {.name = "deepseek-coder",
     .splits = {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[一-龥ࠀ-一가-퟿]+"},
     .single_digits = true},
    {.name = "deepseek-v3", .splits = {kDigits3, kHanAndKana, kDeepSeek3}},
    {.name = "tekken", .splits = {kTekken}, .ignore_merges = true, .add_bos = true},
    {.name = "gpt-4o", .splits = {kGpt4o}},
    {.name = "llama4", .splits = {kGpt4o}, .add_bos = true},
    {.name = "exaone", .splits = {}, .single_digits = true, .gpt2_pattern = true},
    {.name = "exaone4", .splits = {}, .gpt2_pattern = true},
    {.name = "seed-coder", .splits = {kSeedCoder}},
    {.name = "hunyuan-dense", .splits = {kDigits3, kHanAndKana, kDeepSeek3}},
});

enum GgufTokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
inline int token_type(const GgufTokenizerData& data, size_t id) {
  return data.token_types.empty() ? kNormal : data.token_types[id];
}

// SentencePiece joins the neighbours whose union has the best score. As merges: every way to split a token into two others,
// ordered by the token's score, as the conversion to tokenizer.json does it. `vocabulary` holds the tokens of `data`.
Result<std::vector<BpeMerge>> merges_by_score(const GgufTokenizerData& data, const Vocabulary& vocabulary);

// What a GGUF file says of `tokenizer`, which was read from `tokenizer_json`. kUnsupported where it has no words for it: the
// tokenizer that a reader would make of it is held to the given one.
Result<GgufTokenizerData> gguf_tokenizer_data(const Tokenizer& tokenizer, std::string_view tokenizer_json);

}  // namespace choral::text
