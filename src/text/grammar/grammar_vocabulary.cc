#include "text/grammar/grammar_vocabulary.h"

#include <algorithm>

namespace choral::text {

GrammarVocabulary::GrammarVocabulary(const Tokenizer& tokenizer, std::vector<int32_t> end_ids) : end_ids_(std::move(end_ids)) {
  const int32_t size = tokenizer.vocab_size();
  std::sort(end_ids_.begin(), end_ids_.end());
  end_ids_.erase(std::unique(end_ids_.begin(), end_ids_.end()), end_ids_.end());
  std::erase_if(end_ids_, [size](int32_t id) { return id < 0 || id >= size; });
  texts_.resize(static_cast<size_t>(size));
  for (int32_t id = 0; id < size; ++id) {
    const auto spelled = tokenizer.id_to_token(id);
    if (!spelled || tokenizer.is_unused(id) || is_end(id)) continue;
    if (tokenizer.is_special(id)) {
      special_tokens_.emplace_back(id, std::string(*spelled));
      continue;
    }
    const std::string_view bytes = tokenizer.token_bytes(id);
    if (bytes.empty() || bytes.size() > kMaxTokenBytes) continue;
    texts_[id] = {arena_.size(), static_cast<uint32_t>(bytes.size())};
    arena_ += bytes;
    text_ids_.push_back(id);
  }
}

std::string_view GrammarVocabulary::special_text(int32_t id) const {
  const auto found =
      std::find_if(special_tokens_.begin(), special_tokens_.end(), [id](const auto& each) { return each.first == id; });
  return found == special_tokens_.end() ? std::string_view() : found->second;
}

bool GrammarVocabulary::is_end(int32_t id) const { return std::binary_search(end_ids_.begin(), end_ids_.end(), id); }

}  // namespace choral::text
