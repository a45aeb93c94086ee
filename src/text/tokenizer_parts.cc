#include "text/tokenizer_parts.h"

#include <algorithm>

namespace choral::text {

Status TokenizerBuilder::add_tokens(const std::vector<AddedToken>& tokens, size_t model_size) {
  int64_t next_id = static_cast<int64_t>(model_size);
  for (const AddedToken& token : added_) next_id = std::max<int64_t>(next_id, int64_t{token.id} + 1);
  for (AddedToken token : tokens) {
    if (token.content.empty()) continue;
    const int32_t earlier_at = added_index_.find(token.content);
    if (earlier_at >= 0) {
      AddedToken& earlier = added_[earlier_at];
      token.id = earlier.id;
      if (earlier == token) continue;
      if (!earlier.special) (token.special ? special_order_ : classic_order_).push_back(token);
      token.special |= earlier.special;  // special once, special for good
      earlier = token;
      continue;
    }
    int64_t id = parts_->model_vocabulary.find(token.content);
    if (id < 0) id = next_id++;
    if (id >= kMaxVocabulary) return too_large("more than {} tokens", kMaxVocabulary);
    token.id = static_cast<int32_t>(id);
    added_.push_back(token);
    added_index_.insert_or_assign(added_.back().content, static_cast<int32_t>(added_.size() - 1));
    (token.special ? special_order_ : classic_order_).push_back(token);
  }
  return {};
}

std::optional<int32_t> TokenizerBuilder::find(std::string_view token) const {
  if (const int32_t at = added_index_.find(token); at >= 0) return added_[at].id;
  const int32_t id = parts_->model_vocabulary.find(token);
  return id < 0 ? std::nullopt : std::optional<int32_t>(id);
}

void TokenizerBuilder::set_special_token(std::string_view role_key, std::string_view token) {
  for (auto& [key, value] : parts_->special_tokens) {
    if (key == role_key) {
      value = token;
      return;
    }
  }
  parts_->special_tokens.emplace_back(role_key, token);
}

bool TokenizerBuilder::model_takes_bytes() const {
  using Kind = PreTokenizerStep::Kind;
  const auto& steps = parts_->pre_tokenizer.steps;
  if (steps.empty() || steps.back().kind != Kind::kByteLevel) return false;
  const auto is_byte_level = [](const PreTokenizerStep& s) { return s.kind == Kind::kByteLevel; };
  if (std::count_if(steps.begin(), steps.end(), is_byte_level) != 1) return false;
  return std::none_of(parts_->normalizer.steps.begin(), parts_->normalizer.steps.end(),
                      [](const NormalizerStep& s) { return s.kind == NormalizerStep::Kind::kByteLevel; });
}

Status TokenizerBuilder::index_added_tokens() {
  size_t bytes = 0;
  for (const AddedToken& token : added_) bytes += token.content.size();
  EncodeBudget budget(bytes);  // of all of them
  for (const auto* list : {&special_order_, &classic_order_}) {
    for (const AddedToken& token : *list) {
      const AddedToken& latest = added_[added_index_.find(token.content)];
      if (!token.normalized) {
        CHORAL_RETURN_IF_ERROR(parts_->raw_matcher.add(token.content, latest));
        continue;
      }
      std::string pattern = token.content;
      bool at_start = true;
      if (!parts_->normalizer.empty()) CHORAL_RETURN_IF_ERROR(parts_->normalizer.apply(token.content, budget, pattern, at_start));
      CHORAL_RETURN_IF_ERROR(parts_->normalized_matcher.add(pattern, latest));
    }
  }
  return {};
}

Status TokenizerBuilder::index_texts() {
  constexpr size_t kMaxBytes = size_t{1} << 29;  // of all tokens' texts
  Tokenizer::Parts& p = *parts_;
  const auto size = static_cast<size_t>(p.vocabulary().id_limit());
  size_t bytes_of_all = 0;
  for (int32_t id = 0; id < p.vocabulary().id_limit(); ++id) {
    if (p.vocabulary().contains(id)) bytes_of_all += p.vocabulary().token(id).size();
  }
  EncodeBudget budget(2 * bytes_of_all);  // each is decoded for two uses
  p.decoder_text.resize(size);
  p.bytes.resize(size);
  const auto keep = [&p](std::string_view text) {
    p.text_arena += text;
    return std::make_pair(static_cast<uint64_t>(p.text_arena.size() - text.size()), static_cast<uint32_t>(text.size()));
  };
  for (int32_t id = 0; id < p.vocabulary().id_limit(); ++id) {
    if (!p.vocabulary().contains(id)) continue;
    const auto i = static_cast<size_t>(id);
    CHORAL_TRY(const std::string text, p.decoder.token_text(p.vocabulary().token(id), budget));
    p.decoder_text[i] = keep(text);
    p.decoder.longest_text = std::max(p.decoder.longest_text, text.size());
    CHORAL_TRY(const std::string bytes, p.decoder.token_bytes(text, budget));
    p.bytes[i] = bytes == text ? p.decoder_text[i] : keep(bytes);
    if (p.text_arena.size() > kMaxBytes) return too_large("the decoder makes more than {} bytes of the vocabulary", kMaxBytes);
  }
  return {};
}

void TokenizerBuilder::bound_tokens() {
  Tokenizer::Parts& p = *parts_;
  const size_t shrinking = p.normalizer.most_shrinking();
  if (!p.model->keeps_all_text()) return;
  p.word_bytes_per_token = p.model_vocabulary.longest();
  const size_t raw = p.raw_matcher.longest(), normalized = p.normalized_matcher.longest();
  if (shrinking == 0 || raw == 0 || normalized == 0 || !p.pre_tokenizer.keeps_all_text()) return;
  p.bytes_per_token = std::max({p.word_bytes_per_token, raw, normalized}) * shrinking;
}

Status TokenizerBuilder::join_vocabularies() {
  const Vocabulary& own = parts_->model_vocabulary;
  const bool all_are_own = own.size() > 0 && std::all_of(added_.begin(), added_.end(), [&](const AddedToken& token) {
                             return own.contains(token.id) && own.token(token.id) == token.content;
                           });
  if (all_are_own) return {};
  Vocabulary& all = parts_->all_tokens;
  for (int32_t id = 0; id < own.id_limit(); ++id) {
    if (own.contains(id)) CHORAL_RETURN_IF_ERROR(all.add(own.token(id), id));
  }
  for (const AddedToken& token : added_) CHORAL_RETURN_IF_ERROR(all.add(token.content, token.id));
  return all.finish();
}

Result<std::shared_ptr<const Tokenizer>> TokenizerBuilder::build() {
  Tokenizer::Parts& p = *parts_;
  CHORAL_RETURN_IF_ERROR(index_added_tokens());
  CHORAL_RETURN_IF_ERROR(join_vocabularies());
  p.special.resize(p.vocabulary().id_limit());
  for (const AddedToken& token : added_) p.special[token.id] = token.special;
  p.decoder.plan();
  CHORAL_RETURN_IF_ERROR(index_texts());
  bound_tokens();
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(parts_)));
}

}  // namespace choral::text
