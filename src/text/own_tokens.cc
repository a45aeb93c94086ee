#include "text/own_tokens.h"

#include "base/printable.h"
#include "text/tokenizer_parts.h"

namespace choral::text {

Result<std::vector<AddedToken>> Tokenizer::unknown(std::span<const AddedToken> tokens) const {
  std::vector<AddedToken> out;
  for (const AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    const auto known = token_to_id(token.content);
    if (known == token.id) continue;
    if (known) {
      return corrupt("the token {} has id {} there, here {}", quoted(token.content, 100), token.id, *known);
    }
    const auto other = id_to_token(token.id);
    const auto place = static_cast<size_t>(token.id);
    const bool is_free = !other || (place < parts_->unused.size() && parts_->unused[place]);
    if (!is_free) {
      return corrupt("id {} is the token {} there, here {}", token.id, quoted(token.content, 100), quoted(*other, 100));
    }
    out.push_back(token);
  }
  std::sort(out.begin(), out.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  for (size_t i = 1; i < out.size(); ++i) {
    if (out[i].id != out[i - 1].id) continue;
    if (out[i].content == out[i - 1].content) continue;
    return corrupt("tokens {} and {} both have id {}", quoted(out[i - 1].content, 100), quoted(out[i].content, 100), out[i].id);
  }
  StringTable contents(out.size());
  for (const AddedToken& token : out) {
    const int32_t other = contents.find(token.content);
    if (other >= 0 && other != token.id) {
      return corrupt("token {} has the ids {} and {}", quoted(token.content, 100), other, token.id);
    }
    contents.insert_or_assign(token.content, token.id);
  }
  out.erase(std::unique(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.id == b.id; }), out.end());
  return out;
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::with_tokens(const Tokenizer& base, std::span<const AddedToken> tokens) {
  CHORAL_TRY(const auto unknown, base.unknown(tokens));
  const Parts& parts = *base.parts_;
  auto more = base.more_ ? std::make_unique<More>(*base.more_) : std::make_unique<More>();
  if (!base.more_) {
    more->raw_matcher = parts.raw_matcher;
    more->normalized_matcher = parts.normalized_matcher;
  }
  size_t bytes = 0;
  for (const AddedToken& token : tokens) bytes += token.content.size();
  EncodeBudget budget(3 * bytes);  // of all of them, in three forms
  // A token that the base spells without having it as an added one is looked for, too.
  for (const AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    if (!token.normalized) {
      CHORAL_RETURN_IF_ERROR(more->raw_matcher.add(token.content, token));
      continue;
    }
    std::string pattern = token.content;
    if (!parts.normalizer.empty()) {
      bool at_start = true;
      CHORAL_RETURN_IF_ERROR(parts.normalizer.apply(token.content, budget, pattern, at_start));
    }
    CHORAL_RETURN_IF_ERROR(more->normalized_matcher.add(pattern, token));
  }
  for (const AddedToken& token : unknown) {
    More::Token own{.id = token.id, .special = token.special, .content = token.content, .decoder_text = {}, .bytes = {}};
    CHORAL_TRY(own.decoder_text, parts.decoder.token_text(token.content, budget));
    CHORAL_TRY(own.bytes, parts.decoder.token_bytes(own.decoder_text, budget));
    more->tokens.push_back(std::move(own));
  }
  std::sort(more->tokens.begin(), more->tokens.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  const size_t raw = more->raw_matcher.longest(), normalized = more->normalized_matcher.longest();
  if (parts.bytes_per_token > 0 && raw > 0 && normalized > 0) {
    more->bytes_per_token = std::max(parts.bytes_per_token, std::max(raw, normalized) * parts.normalizer.most_shrinking());
  }
  auto made = std::shared_ptr<Tokenizer>(new Tokenizer(base.parts_));
  made->more_ = std::move(more);
  return std::shared_ptr<const Tokenizer>(std::move(made));
}

}  // namespace choral::text
