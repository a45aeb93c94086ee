// "Any JSON object", or any JSON value, over a vocabulary. Inside a string nearly every token fits wherever the string stands, so
// those tokens are known beforehand; only tokens that close the string depend on what is open around it, and they are few.
// Thread-safety: immutable.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "text/grammar/automaton_matcher.h"
#include "text/grammar/json_automaton.h"

namespace choral::text {

// Of a vocabulary, for all automata over it.
struct JsonTokens {
  JsonTokens(const GrammarVocabulary& vocabulary, std::shared_ptr<const TokenTrie> all_tokens);

  // Between two characters of a string: of any length, or of one that has room for so many characters.
  KnownMask in_string() const { return {inside_string, *closing}; }
  KnownMask in_string(int64_t room) const {
    if (room >= static_cast<int64_t>(GrammarVocabulary::kMaxTokenBytes)) return in_string();
    return {inside_short[std::clamp<int64_t>(room, 0, kShort)], *closing_or_long};
  }

  static constexpr int64_t kShort = 48;

  std::shared_ptr<const TokenTrie> all;
  std::vector<uint32_t> inside_string;              // tokens that a string takes whole
  std::unique_ptr<const TokenTrie> closing;         // tokens with a quote that closes it
  std::vector<std::vector<uint32_t>> inside_short;  // by the number of characters that they begin at most
  std::unique_ptr<const TokenTrie> closing_or_long;
};

class JsonTextAutomaton {
 public:
  using State = JsonState;
  enum class Top { kObject, kValue };
  JsonTextAutomaton(Top top, JsonLimits limits, std::shared_ptr<const JsonTokens> tokens)
      : json_(limits), top_(top), tokens_(std::move(tokens)) {}

  State start() const { return top_ == Top::kObject ? JsonAutomaton::start_of_object() : JsonAutomaton::start_of_value(); }
  bool step(State& state, uint8_t byte) const { return json_.step(state, byte); }
  static bool complete(const State& state) { return JsonAutomaton::complete(state); }
  KnownMask known(const State& state) const {
    if (state.phase == JsonPhase::kString) return tokens_->in_string();
    return {{}, *tokens_->all};
  }

 private:
  JsonAutomaton json_;
  Top top_;
  std::shared_ptr<const JsonTokens> tokens_;
};

}  // namespace choral::text
