#include "text/fill_tokens.h"

#include <span>

namespace choral::text {
namespace {

// Of Qwen's coders, StarCoder and Granite, DeepSeek's coders, Code Llama, GLM, Refact; DeepSeek's bars and strokes are not ASCII.
constexpr std::array<std::string_view, 6> kPrefixTexts{"<|fim_prefix|>",  "<fim_prefix>", "<fim-prefix>",
                                                       "<｜fim▁begin｜>", "▁<PRE>",       "<|code_prefix|>"};
constexpr std::array<std::string_view, 6> kSuffixTexts{"<|fim_suffix|>", "<fim_suffix>", "<fim-suffix>",
                                                       "<｜fim▁hole｜>", "▁<SUF>",       "<|code_suffix|>"};
constexpr std::array<std::string_view, 6> kMiddleTexts{"<|fim_middle|>", "<fim_middle>", "<fim-middle>",
                                                       "<｜fim▁end｜>",  "▁<MID>",       "<|code_middle|>"};
constexpr std::array<std::string_view, 3> kPadTexts{"<|fim_pad|>", "<fim_pad>", "<fim-pad>"};
constexpr std::array<std::string_view, 4> kRepositoryTexts{"<|repo_name|>", "<repo_name>", "<reponame>", "<|fim_repo|>"};
constexpr std::array<std::string_view, 2> kFileTexts{"<|file_sep|>", "<file_sep>"};

std::optional<int32_t> find_token(const Tokenizer& tokenizer, std::string_view role, std::span<const std::string_view> texts) {
  if (const auto named = tokenizer.special_id(role)) return named;
  for (const auto text : texts) {
    if (const auto id = tokenizer.token_to_id(text)) return id;
  }
  return std::nullopt;
}

}  // namespace

FillTokens fill_tokens(const Tokenizer& tokenizer) {
  return {.prefix = find_token(tokenizer, kFillRoles[0], kPrefixTexts),
          .suffix = find_token(tokenizer, kFillRoles[1], kSuffixTexts),
          .middle = find_token(tokenizer, kFillRoles[2], kMiddleTexts),
          .pad = find_token(tokenizer, kFillRoles[3], kPadTexts),
          .repository = find_token(tokenizer, kFillRoles[4], kRepositoryTexts),
          .file = find_token(tokenizer, kFillRoles[5], kFileTexts)};
}

}  // namespace choral::text
