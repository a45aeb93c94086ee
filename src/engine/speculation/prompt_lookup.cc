#include "engine/speculation/prompt_lookup.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace choral::engine {

size_t PromptLookup::homes_for(int32_t tokens) { return std::bit_ceil(std::max<size_t>(2 * static_cast<size_t>(tokens), 16)); }

int64_t PromptLookup::bytes_for(int32_t tokens) {
  return static_cast<int64_t>((homes_for(tokens) + static_cast<size_t>(tokens)) * sizeof(int32_t));
}

bool PromptLookup::make_room(int32_t tokens) {
  has_tried_ = true;
  room_ = std::clamp(tokens, 0, kMostText);
  const size_t homes = homes_for(room_);
  mask_ = static_cast<uint32_t>(homes - 1);
  latest_.reset(static_cast<int32_t*>(std::malloc(homes * sizeof(int32_t))));
  before_.reset(static_cast<int32_t*>(std::malloc(std::max<size_t>(static_cast<size_t>(room_), 1) * sizeof(int32_t))));
  if (latest_ == nullptr || before_ == nullptr) room_ = 0;
  if (room_ > 0) std::fill_n(latest_.get(), homes, -1);
  return room_ == std::min(tokens, kMostText);
}

// Of the gram that ends with *last.
uint32_t PromptLookup::home(const int32_t* last) const {
  uint32_t hash = 0;
  for (int32_t i = 0; i < kGram; ++i) hash = (hash ^ static_cast<uint32_t>(last[-i])) * 0x9E3779B1U;
  return (hash >> 7) & mask_;
}

// All but the last token, which has no successor yet.
void PromptLookup::take_in(std::span<const int32_t> text) {
  for (; known_ + 1 < std::ssize(text) && known_ < room_; ++known_) {
    before_[known_] = -1;
    if (known_ + 1 < kGram) continue;
    int32_t& latest = latest_[home(text.data() + known_)];
    before_[known_] = std::exchange(latest, known_);
  }
}

PromptLookup::Match PromptLookup::find(std::span<const int32_t> taken_in, std::span<const int32_t> text) const {
  if (room_ == 0 || std::ssize(text) < kGram) return {};
  const auto end = static_cast<int32_t>(text.size()) - 1;
  const int32_t most = std::min(kMostMatched, end + 1);
  Match best;
  int32_t place = latest_[home(text.data() + end)];
  for (int32_t looked = 0; place >= 0 && looked < kMostPlaces; ++looked, place = before_[place]) {
    int32_t same = 0;
    while (same < most && same <= place && taken_in[place - same] == text[end - same]) ++same;
    if (same > best.tokens) best = {place, same};
    if (same == most) break;
  }
  return best.tokens < kGram ? Match() : best;
}

int32_t PromptLookup::guess(std::span<const int32_t> text, std::span<int32_t> out, int32_t more_than) {
  if (room_ == 0) return 0;
  take_in(text);
  const Match match = find(text, text);
  if (match.tokens <= more_than) return 0;
  const auto period = text.size() - 1 - static_cast<size_t>(match.last);
  for (size_t i = 0; i < out.size(); ++i) out[i] = i < period ? text[static_cast<size_t>(match.last) + 1 + i] : out[i - period];
  return match.tokens;
}

}  // namespace choral::engine
