#include "text/grammar/json_grammar.h"

namespace choral::text {
namespace {

// A string that is a value: takes anything behind its end.
class OpenString {
 public:
  struct State {
    JsonState json;
    bool closed = false;
  };
  bool step(State& state, uint8_t byte) const {
    if (state.closed) return true;
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
  std::vector<int32_t> closing_ids;
  OpenString::State begin;
  begin.json.phase = JsonPhase::kString;
  all->walk(OpenString(), begin, [&](int32_t id, const OpenString::State& state) {
    if (state.closed) {
      closing_ids.push_back(id);
    } else {
      set_bit(inside_string, id);
    }
  });
  closing = std::make_unique<const TokenTrie>(vocabulary, closing_ids);
}

}  // namespace choral::text
