#include "engine/adapters/request_voices.h"

#include <algorithm>

#include "base/check.h"

namespace choral::engine {

RequestVoices::Terms RequestVoices::terms_of(std::span<const RequestVoice::Term> terms) {
  Terms out;
  for (const auto& term : terms) out.emplace_back(term.content->id, term.factor);
  return out;
}

RequestVoice& RequestVoices::join(std::vector<RequestVoice::Term> terms) {
  CHORAL_CHECK(!terms.empty(), "a voice without adapters is the base's");
  RequestVoice& voice = voices_.try_emplace(terms_of(terms)).first->second;
  if (voice.requests > 0) {
    ++voice.requests;
    return voice;
  }
  voice.terms = std::move(terms);
  voice.adapters.clear();
  for (const auto& term : voice.terms) {
    const lora::AdapterId id = term.content->id;
    if (std::find(voice.adapters.begin(), voice.adapters.end(), id) == voice.adapters.end()) voice.adapters.push_back(id);
  }
  if (free_keys_.empty()) {
    voice.key = lora::AdapterKey{next_key_++};
  } else {
    voice.key = free_keys_.back();
    free_keys_.pop_back();
  }
  voice.requests = 1;
  return voice;
}

void RequestVoices::leave(RequestVoice& voice) {
  CHORAL_CHECK(voice.requests > 0, "a voice is left more often than joined");
  if (--voice.requests > 0) return;
  free_keys_.push_back(voice.key);
  voices_.erase(terms_of(voice.terms));
}

}  // namespace choral::engine
