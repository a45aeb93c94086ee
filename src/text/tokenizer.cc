#include "text/tokenizer.h"

#include <algorithm>

#include "text/tokenizer_parts.h"

namespace choral::text {
namespace {

constexpr size_t kMaxText = size_t{64} << 20;

// One encode() call: the stages from the outside in.
class Encoder {
 public:
  Encoder(const Tokenizer::Parts& parts, const AddedTokenMatcher& raw, const AddedTokenMatcher& normalized, bool parse_special,
          EncodeBudget& budget)
      : parts_(parts), raw_matcher_(raw), normalized_matcher_(normalized), parse_special_(parse_special), budget_(budget) {}

  Status run(std::string_view text, std::vector<int32_t>& ids) {
    ids_ = &ids;
    ids.reserve(std::min(text.size() / 4, budget_.max_tokens()) + 8);
    return raw_matcher_.split(text, parse_special_, budget_, [&](std::string_view piece, int32_t id) {
      return id >= 0 ? push(id) : segment(piece, piece.data() == text.data());
    });
  }

 private:
  Status push(int32_t id) {
    ids_->push_back(id);
    return budget_.check_tokens(ids_->size());
  }

  Status segment(std::string_view text, bool at_start) {
    if (!parts_.normalizer.empty()) {
      CHORAL_RETURN_IF_ERROR(parts_.normalizer.apply(text, budget_, normalized_, at_start));
      text = normalized_;
    }
    if (normalized_matcher_.empty()) return text.empty() ? Status() : words({text, at_start});
    return normalized_matcher_.split(text, parse_special_, budget_, [&](std::string_view piece, int32_t id) {
      return id >= 0 ? push(id) : words({piece, at_start && piece.data() == text.data()});
    });
  }

  Status words(const Piece& piece) {
    return parts_.pre_tokenizer.run(piece, budget_, pre_tokenizer_scratch_, [&](const Piece& word) -> Status {
      CHORAL_RETURN_IF_ERROR(budget_.check_room(ids_->size(), word.text.size(), parts_.word_bytes_per_token));
      CHORAL_RETURN_IF_ERROR(parts_.model->encode_piece(word.text, budget_, model_scratch_, *ids_));
      return budget_.check_tokens(ids_->size());
    });
  }

  const Tokenizer::Parts& parts_;
  const AddedTokenMatcher &raw_matcher_, &normalized_matcher_;
  const bool parse_special_;
  EncodeBudget& budget_;
  std::vector<int32_t>* ids_ = nullptr;
  std::string normalized_;
  PreTokenizerScratch pre_tokenizer_scratch_;
  ModelScratch model_scratch_;
};

}  // namespace

Tokenizer::Tokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view utf8, EncodeOptions options) const {
  if (utf8.size() > kMaxText) return too_large("a text of {} bytes to tokenize; the limit is {}", utf8.size(), kMaxText);
  EncodeBudget budget(utf8.size(), options.max_tokens, options.limits);
  CHORAL_RETURN_IF_ERROR(budget.check_room(0, utf8.size(), more_ ? more_->bytes_per_token : parts_->bytes_per_token));
  std::string storage;
  const std::string_view text = sanitize_utf8(utf8, storage);
  std::vector<int32_t> ids;
  CHORAL_RETURN_IF_ERROR(Encoder(*parts_, more_ ? more_->raw_matcher : parts_->raw_matcher,
                                 more_ ? more_->normalized_matcher : parts_->normalized_matcher, options.parse_special, budget)
                             .run(text, ids));
  if (options.add_special_tokens) {
    for (const Template& pieces : parts_->templates) {
      std::vector<int32_t> framed;
      for (const TemplateItem& item : pieces) {
        const std::vector<int32_t>& part = item.sequence ? ids : item.ids;
        framed.insert(framed.end(), part.begin(), part.end());
      }
      ids = std::move(framed);
    }
  }
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, DecodeOptions options) const {
  std::string out;
  DecodeStream stream(parts_->decoder);
  for (const int32_t id : ids) {
    const auto text = decoder_text(id);
    if (text && !(options.skip_special_tokens && is_special(id))) stream.push(*text, out);
  }
  stream.finish(out);
  return out;
}

std::optional<std::string_view> Tokenizer::decoder_text(int32_t id) const {
  if (more_) {
    if (const auto* own = more_->find(id)) return own->decoder_text;
  }
  if (!parts_->vocabulary().contains(id)) return std::nullopt;
  return parts_->text_of(parts_->decoder_text[id]);
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  if (more_) {
    for (const auto& own : more_->tokens) {
      if (own.content == token) return own.id;
    }
  }
  const int32_t id = parts_->vocabulary().find(token);
  return id < 0 ? std::nullopt : std::optional<int32_t>(id);
}

std::optional<std::string_view> Tokenizer::id_to_token(int32_t id) const {
  if (more_) {
    if (const auto* own = more_->find(id)) return own->content;
  }
  if (!parts_->vocabulary().contains(id)) return std::nullopt;
  return parts_->vocabulary().token(id);
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  if (more_) {
    if (const auto* own = more_->find(id)) return own->bytes;
  }
  if (!parts_->vocabulary().contains(id)) return {};
  return parts_->text_of(parts_->bytes[id]);
}

int32_t Tokenizer::vocab_size() const {
  const int32_t own = more_ && !more_->tokens.empty() ? more_->tokens.back().id + 1 : 0;
  return std::max(own, parts_->vocabulary().id_limit());
}

bool Tokenizer::is_special(int32_t id) const {
  if (more_) {
    if (const auto* own = more_->find(id)) return own->special;
  }
  return id >= 0 && static_cast<size_t>(id) < parts_->special.size() && parts_->special[id];
}

bool Tokenizer::is_unused(int32_t id) const {
  if (more_ && more_->find(id)) return false;
  return id >= 0 && static_cast<size_t>(id) < parts_->unused.size() && parts_->unused[id];
}

std::string_view Tokenizer::special_token(std::string_view role) const {
  for (const auto& [key, token] : parts_->special_tokens) {
    if (key.size() == role.size() + 6 && key.starts_with(role) && key.ends_with("_token")) return token;
  }
  return {};
}

std::optional<int32_t> Tokenizer::special_id(std::string_view role) const {
  const std::string_view token = special_token(role);
  return token.empty() ? std::nullopt : token_to_id(token);
}

std::span<const std::pair<std::string, std::string>> Tokenizer::special_tokens() const { return parts_->special_tokens; }

std::span<const NamedTemplate> Tokenizer::chat_templates() const { return parts_->chat_templates; }

bool Tokenizer::clean_up_tokenization_spaces() const { return parts_->decoder.clean_up; }

}  // namespace choral::text
