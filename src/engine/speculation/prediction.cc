#include "engine/speculation/prediction.h"

#include <algorithm>
#include <utility>

namespace choral::engine {

Prediction::Prediction(std::vector<int32_t> tokens) : tokens_(std::move(tokens)) {
  lookup_.make_room(static_cast<int32_t>(std::min<size_t>(tokens_.size(), PromptLookup::kMostText)));
  lookup_.take_in(tokens_);
}

// An answer's first tokens are too few to be looked up; as the prediction's first ones they are as sure as the least match.
PromptLookup::Match Prediction::place_of(std::span<const int32_t> text, int32_t answer_begin) const {
  const auto answer = text.subspan(static_cast<size_t>(answer_begin));
  if (std::ssize(answer) >= PromptLookup::kGram) return lookup_.find(tokens_, text);
  if (answer.empty() || answer.size() > tokens_.size() || !std::equal(answer.begin(), answer.end(), tokens_.begin())) return {};
  return {static_cast<int32_t>(answer.size()) - 1, PromptLookup::kGram};
}

Prediction::Guess Prediction::guess(std::span<const int32_t> text, int32_t answer_begin, std::span<int32_t> out) const {
  const PromptLookup::Match match = place_of(text, answer_begin);
  if (match.tokens == 0) return {};
  const auto rest = std::span(tokens_).subspan(static_cast<size_t>(match.last) + 1);
  const size_t count = std::min(rest.size(), out.size());
  std::copy_n(rest.begin(), count, out.begin());
  return count > 0 ? Guess{match.tokens, static_cast<int32_t>(count)} : Guess();
}

}  // namespace choral::engine
