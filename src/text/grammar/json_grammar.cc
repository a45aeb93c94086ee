#include "text/grammar/json_grammar.h"

namespace choral::text {
namespace {

// A string that is a value: takes anything behind its end.
class OpenString {
 public:
  struct State {
    JsonState json;
    bool closed = false;
    int characters = 0;  // begun
  };
  bool step(State& state, uint8_t byte) const {
    if (state.closed) return true;
    if (state.json.phase == JsonPhase::kString) ++state.characters;
    if (!json_.step(state.json, byte)) return false;
    state.closed = state.json.phase == JsonPhase::kDone;
    return true;
  }

 private:
  JsonAutomaton json_;
};

}  // namespace

JsonTokens::JsonTokens(const GrammarVocabulary& vocabulary, std::shared_ptr<const TokenTrie> all_tokens)
    : all(std::move(all_tokens)), inside_string(vocabulary.words()) {
  inside_short.assign(kShort + 1, std::vector<uint32_t>(vocabulary.words()));
  std::vector<int32_t> closing_ids, long_ids;
  OpenString::State begin;
  begin.json.phase = JsonPhase::kString;
  all->walk(OpenString(), begin, [&](int32_t id, const OpenString::State& state) {
    if (state.closed) return closing_ids.push_back(id);
    set_bit(inside_string, id);
    if (state.characters > kShort) return long_ids.push_back(id);
    for (int64_t room = state.characters; room <= kShort; ++room) set_bit(inside_short[room], id);
  });
  closing = std::make_unique<const TokenTrie>(vocabulary, closing_ids);
  closing_ids.insert(closing_ids.end(), long_ids.begin(), long_ids.end());
  closing_or_long = std::make_unique<const TokenTrie>(vocabulary, closing_ids);
}

}  // namespace choral::text
