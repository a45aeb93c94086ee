#include "engine/dry_breakers.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace choral::engine {
namespace {

constexpr size_t kMostKnown = 4;
constexpr size_t kMostRest = 20;            // tokens, as in llama.cpp
constexpr size_t kMostBreakers = 1U << 18;  // 8 MiB

// Adds what one text comes to.
class BreakerSearch {
 public:
  BreakerSearch(const text::Tokenizer& tokenizer, std::vector<kernels::DryBreaker>& found)
      : tokenizer_(tokenizer), found_(found) {}

  Status add(std::string_view text) {
    for (int32_t id = 0; id < tokenizer_.vocab_size(); ++id) {
      const std::string_view word = tokenizer_.token_bytes(id);
      if (word.find(text) != word.npos) {
        found_.push_back({id, {}});
      } else {
        add_beginnings(id, word, text);
      }
      if (found_.size() > kMostBreakers)
        return too_large("dry_sequence_breakers stand in more than {} tokens; give longer or fewer ones", kMostBreakers);
    }
    return {};
  }

 private:
  // The token ends with the beginning of the text.
  void add_beginnings(int32_t id, std::string_view word, std::string_view text) {
    for (size_t length = std::min(word.size(), text.size() - 1); length > 0; --length) {
      if (!word.ends_with(text.substr(0, length))) continue;
      // What cannot be spelled never comes.
      auto rest = tokenizer_.encode(text.substr(length), {.add_special_tokens = false, .parse_special = false});
      if (!rest.ok() || rest->empty()) continue;
      rest->resize(std::min(rest->size(), kMostRest));
      found_.push_back({id, *std::move(rest)});
    }
  }

  const text::Tokenizer& tokenizer_;
  std::vector<kernels::DryBreaker>& found_;
};

}  // namespace

Result<DryBreakers::List> DryBreakers::of(const std::shared_ptr<const text::Tokenizer>& tokenizer,
                                          const std::vector<std::string>& texts) {
  if (std::all_of(texts.begin(), texts.end(), [](const std::string& text) { return text.empty(); })) return List();
  if (tokenizer == nullptr) return unsupported("dry_sequence_breakers need a tokenizer, which this model does not have");
  {
    const std::lock_guard lock(mutex_);
    for (const Known& known : known_) {
      if (known.tokenizer == tokenizer && known.texts == texts) return known.list;
    }
  }
  std::vector<kernels::DryBreaker> found;
  BreakerSearch search(*tokenizer, found);
  for (const auto& text : texts) {
    if (!text.empty()) CHORAL_RETURN_IF_ERROR(search.add(text));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const kernels::DryBreaker& a, const kernels::DryBreaker& b) { return a.token < b.token; });
  Known known{tokenizer, texts, List(std::move(found))};
  List list = known.list;
  const std::lock_guard lock(mutex_);
  if (known_.size() == kMostKnown) known_.erase(known_.begin());
  known_.push_back(std::move(known));
  return list;
}

}  // namespace choral::engine
