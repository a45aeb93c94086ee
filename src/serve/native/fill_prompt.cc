#include "serve/native/fill_prompt.h"

#include "base/status.h"

namespace choral::serve {
namespace {

class FillPrompt {
 public:
  FillPrompt(const FillTokens& tokens, const Vocabulary& vocabulary, size_t most_tokens)
      : tokens_(tokens), vocabulary_(vocabulary), most_tokens_(most_tokens) {}

  Status add_gap(const Gap& gap) {
    CHORAL_TRY(ids_, vocabulary_.tokenize("", /*add_special_tokens=*/true));
    CHORAL_RETURN_IF_ERROR(add_files(gap.files));
    ids_.push_back(*tokens_.prefix);
    if (const auto* text = std::get_if<std::string>(&gap.before)) {
      CHORAL_RETURN_IF_ERROR(add(*text));
    } else {
      const auto& given = std::get<std::vector<int32_t>>(gap.before);
      ids_.insert(ids_.end(), given.begin(), given.end());
    }
    ids_.push_back(*tokens_.suffix);
    CHORAL_RETURN_IF_ERROR(add(gap.behind));
    ids_.push_back(*tokens_.middle);
    return add(gap.begun);
  }
  std::vector<int32_t> ids() && { return std::move(ids_); }

 private:
  Status add(std::string_view text) {
    CHORAL_TRY(const auto ids, vocabulary_.tokenize(text, /*add_special_tokens=*/false, most_tokens_, /*parse_special=*/false));
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    return {};
  }

  // A repository of these files and of the one with the gap, whose names a client does not tell: llama.cpp's are taken.
  Status add_files(const std::vector<Gap::File>& files) {
    if (files.empty()) return {};
    const bool names_files = tokens_.repository && tokens_.file;
    if (names_files) {
      ids_.push_back(*tokens_.repository);
      CHORAL_RETURN_IF_ERROR(add("myproject\n"));
    }
    for (const auto& file : files) {
      if (names_files) {
        ids_.push_back(*tokens_.file);
        CHORAL_RETURN_IF_ERROR(add(file.name + "\n"));
      }
      CHORAL_RETURN_IF_ERROR(add(file.text));
    }
    if (names_files) {
      ids_.push_back(*tokens_.file);
      CHORAL_RETURN_IF_ERROR(add("filename\n"));
    }
    return {};
  }

  const FillTokens& tokens_;
  const Vocabulary& vocabulary_;
  const size_t most_tokens_;
  std::vector<int32_t> ids_;
};

}  // namespace

Result<std::vector<int32_t>> fill_prompt(const Gap& gap, const FillTokens& tokens, const Vocabulary& vocabulary,
                                         size_t most_tokens) {
  if (!tokens.prefix || !tokens.suffix || !tokens.middle)
    return unsupported(
        "this model fills no gaps: its vocabulary has no tokens for the text before and behind one, such as <|fim_prefix|>; "
        "models that were trained on code have them");
  FillPrompt prompt(tokens, vocabulary, most_tokens);
  CHORAL_RETURN_IF_ERROR(prompt.add_gap(gap));
  return std::move(prompt).ids();
}

void add_fill_stops(const FillTokens& tokens, SamplingParams& sampling) {
  if (sampling.ignore_eos) return;
  for (const auto& token : {tokens.pad, tokens.repository, tokens.file}) {
    if (token) sampling.stop_token_ids.push_back(*token);
  }
}

}  // namespace choral::serve
